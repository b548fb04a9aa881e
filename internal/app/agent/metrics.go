package agent

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/topoctl/topoctl/engine"
)

// family is the samples of one metric.
type family struct {
	name, kind, help string
	samples          []string
	seen             map[string]bool
}

// exposition collects families in the order in which they are first named.
// Source: prometheus.io/docs/instrumenting/exposition_formats.
type exposition struct{ families []*family }

const (
	counter = "counter"
	gauge   = "gauge"
)

// add appends a sample with label pairs: name, value, name, value. Of two with the
// same labels the first is kept: Prometheus refuses a text with both, and names
// come from peers.
func (x *exposition) add(name, kind, help string, value float64, labels ...string) {
	i := slices.IndexFunc(x.families, func(f *family) bool { return f.name == name })
	if i < 0 {
		i = len(x.families)
		x.families = append(x.families, &family{name: name, kind: kind, help: help, seen: map[string]bool{}})
	}
	var pairs []string
	for k := 0; k+1 < len(labels); k += 2 {
		if labels[k+1] != "" {
			pairs = append(pairs, labels[k]+`="`+escape(labels[k+1])+`"`)
		}
	}
	id := name
	if len(pairs) > 0 {
		id += "{" + strings.Join(pairs, ",") + "}"
	}
	f := x.families[i]
	if !f.seen[id] {
		f.seen[id] = true
		f.samples = append(f.samples, id+" "+strconv.FormatFloat(value, 'f', -1, 64))
	}
}

var escapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

func escape(s string) string { return escapes.Replace(strings.ToValidUTF8(s, "\uFFFD")) }

func (x *exposition) text() []byte {
	var b bytes.Buffer
	for _, f := range x.families {
		b.WriteString("# HELP " + f.name + " " + f.help + "\n# TYPE " + f.name + " " + f.kind + "\n")
		for _, s := range f.samples {
			b.WriteString(s + "\n")
		}
	}
	return b.Bytes()
}

// healths are the states of a lane, each with a series of its own, so that one
// can be waited for.
var healths = []string{"idle", "dialling", "healthy", "half-open", "sick", "suspended", "gone"}

// metricsText is an engine's counters for Prometheus. What is not known has no
// sample.
func metricsText(s engine.Stats, started time.Time) []byte {
	x := &exposition{}
	x.add("topoctl_engine_info", gauge, "The engine. A new epoch is a new process.", 1, "name", s.Name, "epoch", strconv.FormatUint(s.Epoch, 10))
	x.add("topoctl_engine_start_time_seconds", gauge, "When the engine began, since 1970.", float64(started.UnixMilli())/1e3)
	for _, c := range []struct {
		name, help string
		value      int64
	}{
		{"batches_total", "Batches of this engine that ended.", s.Batches},
		{"failed_batches_total", "Batches that ended with an error.", s.Failed},
		{"unsafe_batches_total", "Batches that ended while bytes could still land in the peer's memory.", s.Unsafe},
		{"slices_total", "Slices that were carried.", s.Slices},
		{"retried_slices_total", "Slices that were sent again.", s.Retries},
		{"transport_fallbacks_total", "Changes to a worse transport, because every lane of the better one was sick.", s.Fallback},
		{"served_read_bytes_total", "Bytes that peers read from the regions, as far as they are counted.", s.ServedReadBytes},
		{"served_written_bytes_total", "Bytes that peers wrote into the regions, as far as they are counted.", s.ServedWrittenBytes},
		{"refused_requests_total", "Requests of peers that were against the rules.", s.Refused},
		{"notifications_total", "Notifications of peers that arrived.", s.Notifications},
	} {
		x.add("topoctl_engine_"+c.name, counter, c.help, float64(c.value))
	}
	for _, t := range s.ServedUncounted {
		x.add("topoctl_engine_served_uncounted", gauge, "1 for each transport over which peers move bytes that the counters of served bytes do not see.", 1, "transport", t)
	}
	x.add("topoctl_engine_served_connections", gauge, "Data connections of peers that are open.", float64(s.ServedConns))
	x.add("topoctl_engine_served_sessions", gauge, "Peers that have this engine open.", float64(s.Sessions))
	for i := range s.Regions {
		r := &s.Regions[i]
		x.add("topoctl_engine_region_bytes", gauge, "Memory that peers can name, and what they may do with it.", float64(r.Bytes),
			"region", r.Name, "id", strconv.FormatUint(uint64(r.ID), 10), "location", r.Location,
			"read", strconv.FormatBool(r.Read), "write", strconv.FormatBool(r.Write))
	}
	for i := range s.Peers {
		peerMetrics(x, &s.Peers[i])
	}
	for i := range s.Lanes {
		laneMetrics(x, &s.Lanes[i])
	}
	return x.text()
}

func peerMetrics(x *exposition, p *engine.PeerStats) {
	open := 0.0
	if p.State == "open" {
		open = 1
	}
	x.add("topoctl_engine_peer_open", gauge, "1 while a peer that this engine opened can be used.", open, "peer", p.Name)
	if p.RoundTripNS > 0 {
		x.add("topoctl_engine_peer_round_trip_seconds", gauge, "The smallest round trip of late.", float64(p.RoundTripNS)/1e9, "peer", p.Name)
	}
	x.add("topoctl_engine_peer_batches", gauge, "Batches that are running.", float64(p.Batches), "peer", p.Name)
	x.add("topoctl_engine_peer_quarantined_ranges", gauge, "Ranges of the peer's memory in which bytes may still land.", float64(p.Quarantined), "peer", p.Name)
}

func laneMetrics(x *exposition, l *engine.LaneStats) {
	with := []string{"peer", l.Peer, "lane", l.Lane, "transport", l.Transport}
	add := func(name, kind, help string, value float64) {
		x.add("topoctl_engine_lane_"+name, kind, help, value, with...)
	}
	add("bytes_total", counter, "Bytes that a lane carried.", float64(l.Bytes))
	add("slices_total", counter, "Slices that a lane carried.", float64(l.Slices))
	add("retries_total", counter, "Slices that were taken from a lane and sent again.", float64(l.Retries))
	add("failures_total", counter, "How often a lane became sick.", float64(l.Failures))
	add("inflight_bytes", gauge, "Bytes that a lane carries now.", float64(l.InflightBytes))
	add("inflight_slices", gauge, "Slices that a lane carries now.", float64(l.InflightSlices))
	add("window_bytes", gauge, "Bytes that a lane may carry at a time.", float64(l.WindowBytes))
	if l.BytesPerSec > 0 {
		x.add("topoctl_engine_lane_service_bytes_per_second", gauge, "What a lane moves while it is busy; measured, or promised by the topology.",
			float64(l.BytesPerSec), append(slices.Clone(with), "measured", strconv.FormatBool(l.Measured))...)
	}
	for _, h := range healths {
		value := 0.0
		if l.Health == h {
			value = 1
		}
		x.add("topoctl_engine_lane_health", gauge, "1 for the state that a lane is in.", value, append(slices.Clone(with), "health", h)...)
	}
}
