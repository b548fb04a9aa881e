package counters_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
)

const second = int64(1e9)

func sample(at int64, ports ...counters.Port) *counters.Sample {
	return &counters.Sample{AtNS: at, Ports: ports}
}

// port has bytes and packets; -1 is a counter that is not known.
func port(sent, received, sentPackets, receivedPackets int64) counters.Port {
	n := func(v int64) *uint64 {
		if v < 0 {
			return nil
		}
		return new(uint64(v))
	}
	return counters.Port{ID: "port:mlx5_0/1", SentBytes: n(sent), ReceivedBytes: n(received),
		SentPackets: n(sentPackets), ReceivedPackets: n(receivedPackets)}
}

func rate(n int64) *topo.Rate { return new(topo.Rate(n)) }

func TestPortRates(t *testing.T) {
	for _, tt := range []struct {
		name          string
		before, after *counters.Sample
		want          counters.PortRates
	}{
		{"a second", sample(0, port(1000, 2000, 10, 20)), sample(second, port(5000, 2000, 14, 20)),
			counters.PortRates{SentBytesPerSec: rate(4000), ReceivedBytesPerSec: rate(0), SentPacketsPerSec: new(int64(4)), ReceivedPacketsPerSec: new(int64(0))}},
		{"other time, any origin", sample(-second, port(0, 0, 0, 0)), sample(second, port(400e9, 3, 1, 3)),
			counters.PortRates{SentBytesPerSec: rate(200e9), ReceivedBytesPerSec: rate(1), SentPacketsPerSec: new(int64(0)), ReceivedPacketsPerSec: new(int64(1))}},
		{"unknown in one of both", sample(0, port(-1, 7, -1, 7)), sample(second, port(5, -1, -1, 8)),
			counters.PortRates{ReceivedPacketsPerSec: new(int64(1))}},
		{"time stands still", sample(5, port(1, 1, 1, 1)), sample(5, port(9, 9, 9, 9)), counters.PortRates{}},
		{"time goes back", sample(5, port(1, 1, 1, 1)), sample(4, port(9, 9, 9, 9)), counters.PortRates{}},
		{"32 bits wrapped, or not", sample(0, port(math.MaxUint32-5, 1, 1, 1)), sample(second, port(10, 2, 2, 2)), counters.PortRates{}},
		{"one counter went back: all began anew", sample(0, port(100, 100, 50, 50)), sample(second, port(200, 200, 3, 60)), counters.PortRates{}},
		{"no such rate", sample(0, port(0, 0, 0, 0)), sample(1, port(math.MaxInt64, 1, 0, 0)),
			counters.PortRates{ReceivedBytesPerSec: rate(second), SentPacketsPerSec: new(int64(0)), ReceivedPacketsPerSec: new(int64(0))}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := counters.Between(tt.before, tt.after)
			if diff := cmp.Diff(tt.want, got.Ports["port:mlx5_0/1"]); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if (got.IntervalNS > 0) != (tt.after.AtNS > tt.before.AtNS) {
				t.Errorf("interval %d", got.IntervalNS)
			}
		})
	}
}

func TestErrorsMoved(t *testing.T) {
	before, after := port(9, 9, 9, 9), port(9, 9, 9, 9)
	before.Errors = map[string]uint64{"symbol_error": 3, "link_downed": 7, "packet_seq_err": math.MaxUint32, "gone": 1}
	after.Errors = map[string]uint64{"symbol_error": 5, "link_downed": 7, "packet_seq_err": 4, "new": 90}
	got := counters.Between(sample(0, before), sample(second, after)).Ports[before.ID]
	if diff := cmp.Diff(map[string]uint64{"symbol_error": 2}, got.Errors); diff != "" {
		t.Errorf("only what surely moved (-want +got)\n%s", diff)
	}
	if got.SentBytesPerSec == nil {
		t.Error("an error counter that wrapped says nothing of the bytes")
	}
	// Increments need no time.
	if got := counters.Between(sample(0, before), sample(0, after)).Ports[before.ID]; got.Errors["symbol_error"] != 2 {
		t.Errorf("without time: %v", got.Errors)
	}
}

func TestGPURates(t *testing.T) {
	gpu := func(id topo.ID, sent, received *uint64) counters.GPU {
		return counters.GPU{ID: id, NVLinkSentBytes: sent, NVLinkReceivedBytes: received}
	}
	n := func(v uint64) *uint64 { return &v }
	before := &counters.Sample{GPUs: []counters.GPU{gpu("gpu:0", n(10), n(20)), gpu("gpu:1", n(10), nil), gpu("gpu:2", n(10), n(20)), gpu("gpu:3", nil, nil)}}
	after := &counters.Sample{AtNS: second / 2, GPUs: []counters.GPU{gpu("gpu:0", n(20), n(20)), gpu("gpu:1", n(11), n(5)), gpu("gpu:2", n(0), n(30)), gpu("gpu:4", n(1), n(1))}}
	want := map[topo.ID]counters.GPURates{
		"gpu:0": {NVLinkSentBytesPerSec: rate(20), NVLinkReceivedBytesPerSec: rate(0)},
		"gpu:1": {NVLinkSentBytesPerSec: rate(2)},
		"gpu:2": {},
	}
	if diff := cmp.Diff(want, counters.Between(before, after).GPUs); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestBetweenNothing(t *testing.T) {
	some := sample(3, port(1, 1, 1, 1))
	for _, got := range []counters.Rates{
		counters.Between(nil, some), counters.Between(some, nil), counters.Between(nil, nil), counters.Between(sample(1), some),
	} {
		if len(got.Ports) != 0 || got.GPUs == nil || got.Ports == nil {
			t.Errorf("%+v", got)
		}
	}
	text, err := json.Marshal(counters.Between(some, some))
	if err != nil || !strings.Contains(string(text), `"sent_bytes_per_sec":null`) {
		t.Errorf("%s, %v: what is not known is null", text, err)
	}
}

// Whatever the counters are, a rate is nil or not negative, and what was counted is the
// rate times the interval.
func TestBetweenProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		was, is := rapid.Uint64().Draw(t, "was"), rapid.Uint64().Draw(t, "is")
		before, after := rapid.Int64().Draw(t, "before"), rapid.Int64().Draw(t, "after")
		got := counters.Between(
			&counters.Sample{AtNS: before, Ports: []counters.Port{{SentBytes: &was}}},
			&counters.Sample{AtNS: after, Ports: []counters.Port{{SentBytes: &is}}})
		r := got.Ports[""].SentBytesPerSec
		if r == nil {
			return
		}
		if *r < 0 || is < was || after <= before {
			t.Fatalf("%d to %d between %d and %d: rate %d", was, is, before, after, *r)
		}
		moved, seconds := float64(is-was), (float64(after)-float64(before))/1e9
		if diff := math.Abs(float64(*r) - moved/seconds); diff > 1+moved/seconds*1e-9 {
			t.Fatalf("%g bytes in %g s: rate %d", moved, seconds, *r)
		}
	})
}

func TestShare(t *testing.T) {
	for _, tt := range []struct {
		rate, line *topo.Rate
		want       float64
		known      bool
	}{
		{rate(25e9), rate(50e9), 0.5, true},
		{rate(0), rate(50e9), 0, true},
		{rate(51e9), rate(50e9), 1.02, true},
		{nil, rate(50e9), 0, false},
		{rate(1), nil, 0, false},
		{rate(1), rate(0), 0, false},
	} {
		if got, known := counters.Share(tt.rate, tt.line); got != tt.want || known != tt.known {
			t.Errorf("%v of %v: %v, %v", tt.rate, tt.line, got, known)
		}
	}
}

func TestTrouble(t *testing.T) {
	for name, want := range map[string][2]bool{ // trouble, serious
		"symbol_error":               {true, true},
		"link_downed":                {true, true},
		"rx_crc_errors":              {true, true},
		"carrier_down_count":         {true, true},
		"packet_seq_err":             {true, false},
		"vport_packet_seq_err":       {true, false},
		"vport_rx_icrc_encapsulated": {true, true},
		"tx_dropped":                 {true, false},
		"out_of_sequence":            {false, false},
		"np_cnp_sent":                {false, false},
		"port_xmit_wait":             {false, false},
		"port_xmit_data":             {false, false},
		"rx_dropped":                 {false, false},
		"lifespan":                   {false, false},
		"":                           {false, false},
	} {
		if got := [2]bool{counters.Trouble(name), counters.Serious(name)}; got != want {
			t.Errorf("%q: trouble, serious = %v, want %v", name, got, want)
		}
	}
}
