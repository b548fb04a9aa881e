package agent

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/document"
)

// laneHealths are the states of a lane. Each has a series of its own, so that alerts can wait
// for one.
var laneHealths = []engine.LaneHealth{
	engine.LaneIdle, engine.LaneDialling, engine.LaneHealthy, engine.LaneHalfOpen, engine.LaneSick, engine.LaneSuspended, engine.LaneGone,
}

// metricsText is an engine's counters for Prometheus. What is unknown has no sample.
func metricsText(s engine.Stats, started time.Time) []byte {
	x := &document.Metrics{}
	x.Add("topoctl_engine_info", document.Gauge, "The engine. A new epoch is a new process.", document.IntValue(1), "name", s.Name, "epoch", strconv.FormatUint(s.Epoch, 10))
	x.Add("topoctl_engine_start_time_seconds", document.Gauge, "When the engine started, in seconds since 1970.", document.FloatValue(float64(started.UnixMilli())/1e3))
	if s.Registry != nil {
		x.Add("topoctl_engine_registered", document.Gauge, "1 while the registry has the engine's record, so that peers find it by its name.", document.BoolValue(s.Registry.Published), "name", s.Name)
	}
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
		{"notifications_total", "Notifications of peers that arrived.", s.Notifications},
	} {
		x.Add("topoctl_engine_"+c.name, document.Counter, c.help, document.IntValue(c.value))
	}
	for _, failed := range failed(&s) {
		for _, why := range slices.Sorted(maps.Keys(failed.times)) {
			x.Add("topoctl_engine_failures_total", document.Counter, "Peers that could not be opened, batches that did not begin, and batches that failed, by reason.",
				document.IntValue(failed.times[why]), "what", failed.what, "reason", why)
		}
	}
	for _, why := range slices.Sorted(maps.Keys(s.RefusedReasons)) {
		x.Add("topoctl_engine_refused_requests_total", document.Counter, "Requests of peers that were refused, by reason.", document.IntValue(s.RefusedReasons[why]), "reason", why)
	}
	for _, why := range slices.Sorted(maps.Keys(s.RefusedConns)) {
		x.Add("topoctl_engine_refused_connections_total", document.Counter, "Connections that were not let in, by reason.", document.IntValue(s.RefusedConns[why]), "reason", why)
	}
	for _, why := range slices.Sorted(maps.Keys(s.RefusedCalls)) {
		x.Add("topoctl_engine_refused_calls_total", document.Counter, "Calls of peers that were refused because of the limits of what peers may have, by reason.", document.IntValue(s.RefusedCalls[why]), "reason", why)
	}
	x.Add("topoctl_engine_peer_memory_bytes", document.Gauge, "Memory that peers make the engine hold.", document.IntValue(s.PeerBytes))
	x.Add("topoctl_engine_peer_memory_limit_bytes", document.Gauge, "Memory that peers may make the engine hold.", document.IntValue(s.PeerBytesLimit))
	for _, why := range slices.Sorted(maps.Keys(s.DroppedConns)) {
		x.Add("topoctl_engine_dropped_connections_total", document.Counter, "Connections that were ended for what came over them, by reason.", document.IntValue(s.DroppedConns[why]), "reason", why)
	}
	for _, t := range s.ServedUncounted {
		x.Add("topoctl_engine_served_uncounted", document.Gauge, "1 for each transport over which peers move bytes that the counters of served bytes do not include.", document.IntValue(1), "transport", t)
	}
	x.Add("topoctl_engine_served_connections", document.Gauge, "Open data connections of peers.", document.IntValue(int64(s.ServedConns)))
	x.Add("topoctl_engine_served_sessions", document.Gauge, "Peers with an open session to this engine.", document.IntValue(int64(s.Sessions)))
	for i := range s.Regions {
		r := &s.Regions[i]
		x.Add("topoctl_engine_region_bytes", document.Gauge, "Memory that peers can access, and how.", document.IntValue(r.Bytes),
			"region", r.Name, "id", strconv.FormatUint(r.ID, 10), "location", r.Location,
			"read", strconv.FormatBool(r.Read), "write", strconv.FormatBool(r.Write))
	}
	x.Add("topoctl_engine_unlisted_regions", document.Gauge, "Regions beyond those that are listed.", document.IntValue(int64(s.RegionsUnlisted)))
	x.Add("topoctl_engine_unlisted_regions_bytes", document.Gauge, "Memory of regions beyond those that are listed.", document.IntValue(s.RegionsUnlistedBytes))
	for i := range s.Peers {
		peerMetrics(x, &s.Peers[i])
	}
	for i := range s.Lanes {
		laneMetrics(x, &s.Lanes[i])
	}
	return x.Bytes()
}

// counts are how often something happened, by reason.
type counts struct {
	what  string
	times map[string]int64
}

func failed(s *engine.Stats) []counts {
	return []counts{{"open", s.Failures.Opens}, {"submit", s.Failures.Submits}, {"batch", s.Failures.Batches}}
}

func peerMetrics(x *document.Metrics, p *engine.PeerStats) {
	x.Add("topoctl_engine_peer_open", document.Gauge, "1 while a peer that this engine opened can be used.", document.BoolValue(p.State == engine.PeerOpen), "peer", p.Name)
	if p.RoundTripNS > 0 {
		x.Add("topoctl_engine_peer_round_trip_seconds", document.Gauge, "The smallest recent round trip.", document.FloatValue(float64(p.RoundTripNS)/1e9), "peer", p.Name)
	}
	x.Add("topoctl_engine_peer_batches", document.Gauge, "Batches that are running.", document.IntValue(p.Batches), "peer", p.Name)
	x.Add("topoctl_engine_peer_quarantined_ranges", document.Gauge, "Ranges of the peer's memory in which bytes may still land.", document.IntValue(int64(p.Quarantined)), "peer", p.Name)
}

func laneMetrics(x *document.Metrics, l *engine.LaneStats) {
	with := []string{"peer", l.Peer, "lane", l.Lane, "transport", string(l.Transport)}
	add := func(name string, kind document.MetricKind, help string, value int64) {
		x.Add("topoctl_engine_lane_"+name, kind, help, document.IntValue(value), with...)
	}
	add("bytes_total", document.Counter, "Bytes that a lane carried.", l.Bytes)
	add("slices_total", document.Counter, "Slices that a lane carried.", l.Slices)
	add("retries_total", document.Counter, "Slices that a lane did not complete and that were sent again.", l.Retries)
	add("failures_total", document.Counter, "How often a lane became sick.", l.Failures)
	add("inflight_bytes", document.Gauge, "Bytes that a lane carries now.", l.InflightBytes)
	add("inflight_slices", document.Gauge, "Slices that a lane carries now.", int64(l.InflightSlices))
	add("window_bytes", document.Gauge, "Bytes that a lane may carry at a time.", l.WindowBytes)
	if l.BytesPerSec > 0 {
		x.Add("topoctl_engine_lane_service_bytes_per_second", document.Gauge, "The rate of a lane while it is busy, measured or expected by the topology.",
			document.IntValue(int64(l.BytesPerSec)), append(slices.Clone(with), "measured", strconv.FormatBool(l.Measured))...)
	}
	for _, h := range laneHealths {
		x.Add("topoctl_engine_lane_health", document.Gauge, "1 for the state that a lane is in.", document.BoolValue(l.Health == h), append(slices.Clone(with), "health", string(h))...)
	}
}
