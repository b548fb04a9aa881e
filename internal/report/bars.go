package report

import (
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/internal/text"
)

// Bars are groups of bars that are made of parts.
type Bars struct {
	Title, Subtitle string
	Parts           []string // the names of parts, in their order
	Groups          []BarGroup
}

// BarGroup are bars on one scale: up to Full, or where that is 0 up to the longest one.
type BarGroup struct {
	Title string
	Full  float64
	Bars  []Bar
	More  string // a line below
}

// Bar is a bar: its parts add up. Tips say what they are.
type Bar struct {
	Name, Value string
	Parts       []float64
	Tips        []string
}

// barColors can be told apart by people who see fewer of them (the set of Okabe and Ito).
var barColors = []color{
	{"b0", "#999999", "#8a8a8a"}, {"b1", "#0072b2", "#2f94d0"}, {"b2", "#cc79a7", "#cc79a7"}, {"b3", "#e69f00", "#e69f00"},
	{"b4", "#d55e00", "#d55e00"}, {"b5", "#56b4e9", "#9ad3f3"},
}

// Sizes of bars in pixels.
const (
	margin     = 20
	lineHeight = 18
	barHeight  = 16
	barStep    = 24
	barLength  = 560
	barValue   = 90  // beside it
	mostName   = 360 // the widest column of names
)

// SVG draws bars.
func (d *Bars) SVG() []byte {
	var c canvas
	names := 70
	for _, g := range d.Groups {
		for _, b := range g.Bars {
			names = min(max(names, pixels(b.Name, 13)), mostName)
		}
	}
	width, y := 2*margin+names+10+barLength+barValue, margin+barHeight-3
	c.write(d.Title, margin, y, 13, ink, bold)
	y += lineHeight
	c.write(fit(d.Subtitle, width-2*margin, 13), margin, y, 13, ink, "")
	x := margin
	y += lineHeight / 2
	for i, name := range d.Parts {
		if i%4 == 0 {
			x = margin
			y += lineHeight
		}
		c.printf(`<rect %s x="%d" y="%d" width="12" height="12"/>`, barColors[i].fill(), x, y-11)
		c.write(name, x+17, y, 13, ink, "")
		x += 190
	}
	for _, g := range d.Groups {
		y += 2 * lineHeight
		c.write(g.Title, margin, y, 13, ink, bold)
		y += lineHeight
		y = g.draw(&c, y, margin+names+10)
		if g.More != "" {
			c.write(g.More, margin, y, 13, faint, "")
		}
	}
	return c.finish(d.Title, d.Title+": "+d.Subtitle+".", width, y+margin)
}

// draw draws bars that begin at left, and gives the base of the line below.
func (g *BarGroup) draw(c *canvas, y, left int) int {
	sum := func(b Bar) (all float64) {
		for _, v := range b.Parts {
			all += v
		}
		return all
	}
	full := g.Full
	for _, b := range g.Bars {
		full = max(full, sum(b))
	}
	scale := barLength / max(full, 1e-9)
	for _, b := range g.Bars {
		c.write(fit(b.Name, left-margin-10, 13), margin, y, 13, ink, "")
		c.printf(`<rect %s x="%d" y="%d" width="%d" height="%d"/>`+"\n", bars.fill(), left, y-13, barLength, barHeight)
		at := float64(left)
		for i, v := range b.Parts {
			if v <= 0 {
				continue
			}
			part := barColors[i]
			if len(b.Parts) == 1 {
				part = barColors[1]
			}
			c.printf(`<rect %s x="%.1f" y="%d" width="%.1f" height="%d">`, part.fill(), at, y-13, v*scale, barHeight)
			c.tip(fmt.Sprintf("%s: %s", b.Name, b.Tips[i]))
			c.printf("</rect>\n")
			at += v * scale
		}
		c.write(b.Value, left+barLength+8, y, 13, ink, "")
		y += barStep
	}
	return y
}

// sparks are the heights of a line of samples.
var sparks = []rune("▁▂▃▄▅▆▇█")

// mostSparks is how many samples a line has: of more, every n-th.
const mostSparks = 60

// Spark draws samples in their order as a line of text, from the least to the most of them.
func Spark(samples []int64) string {
	if len(samples) == 0 {
		return ""
	}
	low, high := slices.Min(samples), slices.Max(samples)
	every := (len(samples) + mostSparks - 1) / mostSparks
	var out []rune
	for i := 0; i < len(samples); i += every {
		height := 0
		if high > low {
			height = int(int64(len(sparks)-1) * ((samples[i] - low) * 1000 / (high - low)) / 1000)
		}
		out = append(out, sparks[height])
	}
	return text.Printable(string(out))
}
