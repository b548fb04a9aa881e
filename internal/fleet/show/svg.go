package show

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

// look is the state of a cell of the map. Each has a sign, for colour is not all that tells them apart.
type look int

const (
	fine look = iota
	note
	warn
	bad
	unknown
	absent
)

var looks = [...]struct{ class, sign, about string }{
	fine:    {"fl-fine", "", "like the others"},
	note:    {"fl-note", "·", "another role: storage, management"},
	warn:    {"fl-warn", "~", "a warning"},
	bad:     {"fl-bad", "!", "an error"},
	unknown: {"fl-unknown", "?", "not known"},
	absent:  {"fl-absent", "", "the host has none"},
}

// The colours, on light and on dark ground; texts on them have a contrast of 4.5 to 1 and more.
const sheet = `.fl-page{fill:#ffffff}.fl-text{fill:#1b222c}.fl-faint{fill:#525c69}.fl-fine{fill:#c3e3c4}.fl-note{fill:#d5e3f5}.fl-warn{fill:#f2c25f}` +
	`.fl-bad{fill:#b3392f}.fl-sign{fill:#1b222c}.fl-bad-sign{fill:#ffffff}.fl-unknown{fill:#e4e7eb}.fl-absent{fill:none}` +
	`@media (prefers-color-scheme: dark){.fl-page{fill:#0a0e13}.fl-text{fill:#e8edf2}.fl-faint{fill:#a9b4c0}.fl-fine{fill:#24482f}.fl-note{fill:#22364f}` +
	`.fl-warn{fill:#6b5316}.fl-bad{fill:#f28b66}.fl-sign{fill:#e8edf2}.fl-bad-sign{fill:#0a0e13}.fl-unknown{fill:#2a313a}}`

// Sizes of the map in pixels.
const (
	margin     = 20
	cellWidth  = 26
	cellHeight = 18
	gap        = 2
	headHeight = 74 // of the names of places, which are turned
	lineHeight = 18
	mostRows   = 2000 // hosts that are drawn: beyond it viewers are slow
)

// cell is one place of one host.
type cell struct {
	look look
	tip  string
}

// plan is the map of a class: hosts are rows, places are columns.
type plan struct {
	title  string
	places []string
	names  []string // of the places, as most hosts call them
	hosts  []string
	cells  [][]cell
}

// SVG is the map of a fleet: a row for each host, a column for each GPU and port, coloured by the
// worst that is found there.
func SVG(f *fleet.Fleet) []byte { return draw(f, true) }

func draw(f *fleet.Fleet, head bool) []byte {
	plans, left := plansOf(f)
	width, height := 640, margin
	label := 40
	for _, p := range plans {
		for _, h := range p.hosts {
			label = max(label, min(260, 8+text.Width(h)*7))
		}
	}
	if head {
		height += 3 * lineHeight
	}
	for _, p := range plans {
		width = max(width, 2*margin+label+len(p.places)*(cellWidth+gap))
		height += lineHeight + headHeight + len(p.hosts)*(cellHeight+gap) + 16
	}
	height += 2*lineHeight + margin
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="%s" font-family="system-ui,-apple-system,'Segoe UI',Helvetica,Arial,'DejaVu Sans',sans-serif">`+"\n",
		width, height, width, height, escape(f.Headline()))
	fmt.Fprintf(&b, "<title>%s</title>\n<style>%s</style>\n", escape(f.Headline()), sheet)
	fmt.Fprintf(&b, `<rect class="fl-page" width="%d" height="%d"/>`+"\n", width, height)
	y := margin
	if head {
		for i, line := range text.Wrap(clean(f.Headline()), (width-2*margin)/8) {
			if i == 2 {
				break
			}
			write(&b, "fl-text", margin, y+14+i*lineHeight, 14, ` font-weight="bold"`, line)
		}
		y += 3 * lineHeight
	}
	for _, p := range plans {
		y = p.draw(&b, y, label)
	}
	if left > 0 {
		write(&b, "fl-faint", margin, y+12, 12, "", fmt.Sprintf("%s not drawn", were(left)))
	}
	legend(&b, y+lineHeight)
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func were(n int) string { return text.Plural(n, "host") + " " + text.Noun(n, "is", "are") }

func write(b *bytes.Buffer, class string, x, y, size int, more, s string) {
	fmt.Fprintf(b, `<text class="%s" x="%d" y="%d" font-size="%d"%s>%s</text>`+"\n", class, x, y, size, more, escape(s))
}

func (p *plan) draw(b *bytes.Buffer, y, label int) int {
	write(b, "fl-text", margin, y+14, 13, ` font-weight="bold"`, p.title)
	y += lineHeight + headHeight
	x := margin + label
	for i, name := range p.names {
		write(b, "fl-faint", 0, 0, 11, fmt.Sprintf(` transform="translate(%d %d) rotate(-90)"`, x+i*(cellWidth+gap)+cellWidth/2+4, y-4), name)
	}
	for i, host := range p.hosts {
		at := y + i*(cellHeight+gap)
		write(b, "fl-text", margin+label-8, at+13, 12, ` text-anchor="end"`, text.Cut(clean(host), 36, text.Ellipsis))
		for j, c := range p.cells[i] {
			if c.look == absent {
				continue
			}
			cx := x + j*(cellWidth+gap)
			fmt.Fprintf(b, `<g><rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="2"><title>%s</title></rect>`, looks[c.look].class, cx, at, cellWidth, cellHeight, escape(c.tip))
			if sign := looks[c.look].sign; sign != "" {
				class := "fl-sign"
				if c.look == bad {
					class = "fl-bad-sign"
				}
				fmt.Fprintf(b, `<text class="%s" x="%d" y="%d" font-size="12" text-anchor="middle">%s</text>`, class, cx+cellWidth/2, at+13, sign)
			}
			b.WriteString("</g>\n")
		}
	}
	return y + len(p.hosts)*(cellHeight+gap) + 16
}

func legend(b *bytes.Buffer, y int) {
	x := margin
	for _, l := range []look{fine, note, warn, bad, unknown} {
		fmt.Fprintf(b, `<rect class="%s" x="%d" y="%d" width="18" height="14" rx="2"/>`, looks[l].class, x, y)
		if sign := looks[l].sign; sign != "" {
			class := "fl-sign"
			if l == bad {
				class = "fl-bad-sign"
			}
			fmt.Fprintf(b, `<text class="%s" x="%d" y="%d" font-size="11" text-anchor="middle">%s</text>`, class, x+9, y+11, sign)
		}
		write(b, "fl-faint", x+23, y+11, 11, "", looks[l].about)
		x += 36 + 7*len(looks[l].about)
	}
}

// hit is the worst finding at a place of a host, and all that is said of it.
type hit struct {
	severity doctor.Severity
	texts    []string
}

// hits are the findings by "host/device", those of a host as a whole by its name alone.
func hits(f *fleet.Fleet) map[string]*hit {
	out := map[string]*hit{}
	add := func(key string, x *fleet.Finding) {
		h := out[key]
		if h == nil {
			h = &hit{severity: x.Severity}
			out[key] = h
		}
		if !slices.Contains(h.texts, x.Text) {
			h.texts = append(h.texts, x.Text)
		}
	}
	for i := range f.Findings { // the worst first
		x := &f.Findings[i]
		if x.Severity == doctor.Info {
			continue
		}
		for _, s := range x.Subjects {
			add(s, x)
		}
		if len(x.Subjects) == 0 {
			for _, h := range x.Hosts {
				add(h, x)
			}
		}
	}
	return out
}

// plansOf makes a map of each class, and one of the hosts without. left is how many hosts have no room.
func plansOf(f *fleet.Fleet) (plans []*plan, left int) {
	at := hits(f)
	by := map[string]*plan{}
	for i := range f.Classes {
		c := &f.Classes[i]
		p := &plan{title: fmt.Sprintf("%s  %s", c.Class, strings.TrimSpace(c.Model))}
		by[c.Class] = p
		plans = append(plans, p)
		p.columns(f, c.Class)
	}
	rest := &plan{title: "not known", places: []string{hostPlace}, names: []string{"host"}}
	rows := 0
	for i := range f.Hosts {
		h := &f.Hosts[i]
		if rows++; rows > mostRows {
			left++
			continue
		}
		p := by[h.Class]
		if p == nil {
			rest.hosts = append(rest.hosts, h.Host)
			rest.cells = append(rest.cells, []cell{{unknown, fmt.Sprintf("%s: %s %s", h.Host, h.Status, h.Reason)}})
			continue
		}
		p.hosts = append(p.hosts, h.Host)
		p.cells = append(p.cells, p.row(h, at))
	}
	plans = slices.DeleteFunc(plans, func(p *plan) bool { return len(p.hosts) == 0 })
	if len(rest.hosts) > 0 {
		plans = append(plans, rest)
	}
	return plans, left
}

// hostPlace is the column of the host as a whole.
const hostPlace = "host"

// columns are the places that hosts of a class have.
func (p *plan) columns(f *fleet.Fleet, class string) {
	names := map[string]string{}
	for i := range f.Hosts {
		h := &f.Hosts[i]
		if h.Class != class {
			continue
		}
		for j := range h.GPUs {
			names[h.GPUs[j].GPU] = h.GPUs[j].GPU
		}
		for j := range h.Ports {
			if q := &h.Ports[j]; q.Place != "" && names[q.Place] == "" {
				names[q.Place] = q.ShortName()
			}
		}
	}
	for place := range names {
		p.places = append(p.places, place)
	}
	slices.SortFunc(p.places, topo.NaturalCompare)
	p.places = append([]string{hostPlace}, p.places...)
	names[hostPlace] = "host"
	for _, place := range p.places {
		p.names = append(p.names, text.Cut(clean(names[place]), 10, text.Ellipsis))
	}
}

// row is one host.
func (p *plan) row(h *fleet.Host, at map[string]*hit) []cell {
	out := make([]cell, len(p.places))
	ports := map[string]*fleet.Port{}
	for i := range h.Ports {
		ports[h.Ports[i].Place] = &h.Ports[i]
	}
	for i, place := range p.places {
		key, c := h.Host+"/"+place, cell{look: fine, tip: h.Host + " " + place}
		if place == hostPlace {
			key, c.tip = h.Host, h.Host
			if h.Status == fleet.Partial {
				c.look, c.tip = unknown, h.Host+": "+h.Reason
			}
		} else if q := ports[place]; q != nil {
			key = h.Host + "/" + q.ShortName()
			c.tip = fmt.Sprintf("%s %s: %s %s", h.Host, q.Port, q.Role, q.State)
			if q.Leaf != "" {
				c.tip += ", leaf " + q.Leaf
			}
			if q.Role != pathsel.RoleData {
				c.look = note
			}
		} else if strings.HasPrefix(place, "nic:") {
			c = cell{look: absent}
		}
		if x := at[key]; x != nil {
			c.look = warn
			if x.severity == doctor.Error {
				c.look = bad
			}
			c.tip += ": " + strings.Join(x.texts, "; ")
		}
		out[i] = c
	}
	return out
}

// clean is text that no viewer obeys.
func clean(s string) string { return text.Printable(s) }

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;")

func escape(s string) string { return escaper.Replace(clean(s)) }
