package agent

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/picture"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
)

// page shows people the engine and its host: what is wrong first.
func (h *handler) page() ([]byte, error) {
	s := h.source.Stats()
	p := &report.Page{
		Title: strings.TrimSpace("Agent " + s.Name), Answer: answerOf(&s),
		Subtitle: fmt.Sprintf("up for %v, as of %s", time.Since(h.started).Round(time.Second), time.Now().UTC().Format(time.RFC3339)),
		Links: []report.Link{{To: "v1/topology", What: "host (JSON)"}, {To: "v1/engine", What: "engine (JSON)"},
			{To: "metrics", What: "metrics of the engine"}, {To: "healthz", What: "health"}},
	}
	if h.look != nil {
		p.Links = append(p.Links, report.Link{To: "metrics/host", What: "metrics of the host"})
	}
	if r := s.Registry; r != nil && !r.Published {
		p.Notices = append(p.Notices, "Peers do not find this engine by its name: "+r.Error)
	}
	chip := func(n int64, one string) { p.Chips = append(p.Chips, report.Chip{N: int(n), What: text.Noun(n, one)}) }
	chip(int64(s.Sessions), "served peer")
	chip(int64(len(s.Peers)), "opened peer")
	chip(int64(len(s.Lanes)), "lane")
	chip(int64(len(s.Regions)+s.RegionsUnlisted), "region")
	chip(s.Batches, "batch")
	chip(s.Failed, "failed batch")
	p.Sections = []report.Section{{Title: "Last failures", Parts: failures(h.source.Recent())}, {Title: "Failed", Table: countsTable(failed(&s))}, {Title: "Refused", Table: countsTable(refused(&s))},
		{Title: "Peers that this engine has opened", Table: peerTable(s.Peers)}, {Title: "Lanes", Table: laneTable(s.Lanes)},
		{Title: "Connections of peers to this engine", Table: servedTable(&s)}, {Title: "Regions", Table: regionTable(&s)}}
	for i := range p.Sections {
		if t := p.Sections[i].Table; t != nil && len(t.Rows) == 0 {
			p.Sections[i].Table = nil
		} else if t != nil {
			t.Cut()
		}
	}
	if t := h.source.Topology(); t != nil {
		var drawing bytes.Buffer
		if err := picture.SVG(&drawing, t, picture.Options{Theme: picture.ThemeAuto}); err != nil {
			return nil, err
		}
		p.Sections = append(p.Sections, report.Section{Title: "Host", Drawing: drawing.Bytes()})
	}
	return p.HTML()
}

// answerOf is the state of an engine in a sentence.
func answerOf(s *engine.Stats) string {
	var bad []string
	lost, sick := 0, 0
	for i := range s.Peers {
		if s.Peers[i].State == "lost" {
			lost++
		}
	}
	for i := range s.Lanes {
		if h := s.Lanes[i].Health; h == "sick" || h == "suspended" {
			sick++
		}
	}
	if lost > 0 {
		bad = append(bad, fmt.Sprintf("%d of %s lost", lost, text.Plural(len(s.Peers), "opened peer")))
	}
	if sick > 0 {
		bad = append(bad, fmt.Sprintf("%d of %s sick or suspended", sick, text.Plural(len(s.Lanes), "lane")))
	}
	switch {
	case len(bad) > 0:
		return strings.Join(bad, ", ")
	case len(s.Peers)+s.Sessions == 0:
		return "No peers yet"
	}
	return "Every opened peer answers, and no lane is sick"
}

// failures are a card for each of the latest batches that failed.
func failures(recent []*engine.Explanation) (cards []report.Section) {
	for _, x := range recent {
		if x.State != "failed" && x.State != "unsafe" {
			continue
		}
		ago := time.Duration(x.EndedAgoNS).Round(time.Millisecond)
		how := report.Section{Title: "How it was carried", Folded: true}
		for line := range strings.Lines(x.Text()) {
			how.Lines = append(how.Lines, strings.TrimSpace(line))
		}
		cards = append(cards, report.Section{Title: fmt.Sprintf("%s to %s: %s %v ago", cmp.Or(x.Label, "transfer"), x.Peer, x.State, ago), Kind: "error",
			Lines: []string{x.Error}, Parts: []report.Section{how}})
	}
	return cards
}

func refused(s *engine.Stats) []counts {
	return []counts{{"connection not let in", s.RefusedConns}, {"request", s.RefusedReasons}, {"call", s.RefusedCalls}, {"connection ended", s.DroppedConns}}
}

func countsTable(all []counts) *report.Table {
	t := &report.Table{Head: []string{"WHAT", "WHY", "TIMES"}, Columns: []text.Column{{}, {}, {Right: true}}}
	for _, x := range all {
		for _, why := range slices.Sorted(maps.Keys(x.times)) {
			if n := x.times[why]; n > 0 {
				t.Add(x.what, why, strconv.FormatInt(n, 10))
			}
		}
	}
	return t
}

func peerTable(peers []engine.PeerStats) *report.Table {
	t := &report.Table{Head: []string{"PEER", "STATE", "ROUND TRIP", "REGIONS", "RUNNING", "ERROR"}, Columns: []text.Column{{}, {}, {Right: true}, {Right: true}, {Right: true}, {}}}
	for i := range peers {
		p := &peers[i]
		roundTrip := "?"
		if p.RoundTripNS > 0 {
			roundTrip = time.Duration(p.RoundTripNS).Round(100 * time.Nanosecond).String()
		}
		t.Add(p.Name, string(p.State), roundTrip, strconv.Itoa(p.Regions), strconv.FormatInt(p.Batches, 10), p.Error)
	}
	return t
}

func laneTable(lanes []engine.LaneStats) *report.Table {
	t := &report.Table{Head: []string{"PEER", "LANE", "TRANSPORT", "HEALTH", "RATE", "MOVED", "IN FLIGHT", "SENT AGAIN", "LAST ERROR"},
		Columns: []text.Column{{}, {}, {}, {}, {Right: true}, {Right: true}, {Right: true}, {Right: true}, {}}}
	for i := range lanes {
		l := &lanes[i]
		rate, basis := "?", topo.BasisTypical
		if l.Measured {
			basis = topo.BasisMeasured
		}
		if l.BytesPerSec > 0 {
			rate = basis.Mark(l.BytesPerSec.String())
		}
		t.Add(l.Peer, l.Lane, string(l.Transport), string(l.Health), rate, units.Bytes(l.Bytes), units.Bytes(l.InflightBytes), strconv.FormatInt(l.Retries, 10), l.LastError)
	}
	return t
}

func servedTable(s *engine.Stats) *report.Table {
	t := &report.Table{Head: []string{"PEER (ITS OWN WORD)", "TRANSPORT", "READ", "WROTE", "FROM"}, Columns: []text.Column{{}, {}, {Right: true}, {Right: true}, {}}}
	moved := func(n *int64) string {
		if n == nil {
			return "?"
		}
		return units.Bytes(*n)
	}
	for i := range s.Served {
		c := &s.Served[i]
		t.Add(c.Peer, string(c.Transport), moved(c.ReadBytes), moved(c.WrittenBytes), c.RemoteAddress)
	}
	if s.ServedUnlisted > 0 {
		t.After = append(t.After, "and "+strconv.Itoa(s.ServedUnlisted)+" more")
	}
	return t
}

func regionTable(s *engine.Stats) *report.Table {
	t := &report.Table{Head: []string{"REGION", "SIZE", "WHERE", "PEERS MAY"}, Columns: []text.Column{{}, {Right: true}, {}, {}}}
	for i := range s.Regions {
		r := &s.Regions[i]
		may := "nothing"
		switch {
		case r.Read && r.Write:
			may = "read, write"
		case r.Read:
			may = "read"
		case r.Write:
			may = "write"
		}
		t.Add(r.Name, units.Bytes(r.Bytes), r.Location, may)
	}
	if s.RegionsUnlisted > 0 {
		t.After = append(t.After, "and "+strconv.Itoa(s.RegionsUnlisted)+" more")
	}
	return t
}
