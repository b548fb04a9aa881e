package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/probe"
)

// claimed is a pair that took a second, and its result as an honest agent gives it.
func claimed() (*controllerRound, *pairRun) {
	f := &Fleet{}
	from, to := &roundHost{a: &agent{name: "n0"}, links: map[int][]probe.LinkState{}}, &roundHost{a: &agent{name: "n1"}, links: map[int][]probe.LinkState{}}
	p := pair("n0", "n1")
	p.Path = []probe.LinkKey{"n0 a up"}
	x := &pairRun{pair: &p, spec: quick(), from: from, to: to, elapsed: time.Second}
	x.spec.SizesBytes = []int64{64 << 10}
	rtts := []int64{1000, 2000, 3000}
	rtt := probe.NewPercentiles(rtts)
	x.result = &result{Measurement: probe.Measurement{
		Bandwidth: []probe.Bandwidth{probe.NewBandwidth(64<<10, []int64{1e9, 2e9, 3e9}, 30e6, 15e6, probe.StoppedCI)},
		Latency:   &probe.Latency{SizeBytes: 8, RTT: rtt, OneWay: rtt.Half()},
	}}
	from.from, to.to = []*pairRun{x}, []*pairRun{x}
	t := &controllerRound{f: f, spec: x.spec, pairs: []*pairRun{x}, hosts: []*roundHost{from, to}, began: time.Now().Add(-time.Second)}
	return t, x
}

func TestClaimsOfAnHonestAgent(t *testing.T) {
	turn, x := claimed()
	m := turn.measurement(t.Context(), x)
	if m.Err != nil || len(m.Bandwidth) != 1 || m.Bandwidth[0].MeanBytesPerSec != 2e9 || m.Latency.RTT.P50 != 2000 || m.Latency.OneWay.P50 != 1000 {
		t.Errorf("%v, %+v", m.Err, m)
	}
	// What can be reckoned from the samples is.
	x.result.Bandwidth[0].MeanBytesPerSec, x.result.Bandwidth[0].CI95BytesPerSec = 1e15, new(int64(0))
	if m := turn.measurement(t.Context(), x); m.Err != nil || m.Bandwidth[0].MeanBytesPerSec != 2e9 || *m.Bandwidth[0].CI95BytesPerSec == 0 {
		t.Errorf("%v, %+v", m.Err, m.Bandwidth)
	}
	x.spec.RateLimit = 1 << 20 // 30 MB in 15 ms: within what is under way at the end
	if m := turn.measurement(t.Context(), x); m.Err != nil {
		t.Error(m.Err)
	}
	b := &x.result.Bandwidth[0]
	b.Bytes, b.SamplesBytesPerSec = 300e6, []int64{20e9, 20e9, 20e9}
	if m := turn.measurement(t.Context(), x); m.Err == nil || !strings.Contains(m.Err.Error(), "at most 1048576 bytes/s were allowed") {
		t.Error(m.Err)
	}
}

// A claim is held against what the target served, with the claims of the others there.
func TestClaimsAndServed(t *testing.T) {
	for name, c := range map[string]struct {
		served    int64
		other     int64 // bytes of another pair to the same target; 0 none
		uncounted []string
		want      string // of the error
		note      string
	}{
		"as much":            {served: 30e6},
		"more is served":     {served: 31e6},
		"less":               {served: 30e6 - 1, want: "n0: its result is refused: n1 says that it took 29999999 bytes, n0: 30000000 are claimed: this is impossible"},
		"together":           {served: 60e6, other: 30e6},
		"together less":      {served: 59e6, other: 30e6, want: "n1 says that it took 59000000 bytes, n0, n2: 60000000 are claimed"},
		"another impossible": {served: 30e6, other: math.MaxInt64},
		"not counted":        {uncounted: []string{probe.TCP}, note: "the bytes are those that n0 reports"},
	} {
		t.Run(name, func(t *testing.T) {
			turn, x := claimed()
			x.to.began, x.to.end = &served{WrittenBytes: 7}, &served{WrittenBytes: 7 + c.served, Uncounted: c.uncounted}
			if c.other > 0 {
				_, y := claimed()
				y.from.a.name, y.to = "n2", x.to
				y.result.Bandwidth[0].Bytes = c.other
				x.to.to = append(x.to.to, y)
			}
			m := turn.measurement(t.Context(), x)
			if (m.Err == nil) != (c.want == "") || m.Err != nil && (!errors.Is(m.Err, errClaim) || !strings.Contains(m.Err.Error(), c.want)) {
				t.Errorf("%v, want %q", m.Err, c.want)
			}
			if !strings.Contains(strings.Join(m.Notes, ""), c.note) || c.note == "" && len(m.Notes) > 0 && m.Err == nil {
				t.Errorf("notes %q", m.Notes)
			}
		})
	}
}

// What an error is about travels with it; a word that nobody knows is none.
func TestCauseOfAnError(t *testing.T) {
	for said, want := range map[string]probe.Cause{`"connect"`: probe.CauseConnect, `"move"`: probe.CauseMove, `"\u001b[2J"`: "", `""`: ""} {
		turn, x := claimed()
		if err := json.Unmarshal([]byte(`{"error": "it broke", "error_cause": `+said+`}`), x.result); err != nil {
			t.Fatal(err)
		}
		x.result.Bandwidth, x.result.Latency = nil, nil
		if m := turn.measurement(t.Context(), x); m.Err == nil || probe.CauseOf(m.Err) != want {
			t.Errorf("%s: %v, about %q", said, m.Err, probe.CauseOf(m.Err))
		}
	}
	for _, why := range []probe.Cause{"", probe.CauseConnect, probe.CauseMove} {
		if r := outcome(probe.Measurement{}, fmt.Errorf("later: %w (%w)", errors.New("time"), probe.Because(why, errors.New("first")))); r.Cause != why || r.Error == "" {
			t.Errorf("%q: %+v", why, r)
		}
	}
}

// Whatever an agent says, what is believed of it is possible.
func FuzzAnswers(f *testing.F) {
	_, x := claimed()
	for _, a := range []answer{
		{Jobs: []jobState{{State: stateDone, Result: x.result, Samples: []probe.Sample{{SizeBytes: 64 << 10, BytesPerSec: 5}}}}, Served: &served{}},
		{Jobs: []jobState{{State: stateDone, Result: &result{Error: "x", Waived: "y"}}}, Links: []linkStates{{Links: []probe.LinkState{{Link: "n0 a up"}}}}},
		{Agent: &description{Name: "a", Transports: []string{"tcp"}, Endpoints: []endpoint{{Address: "1.2.3.4:5"}}, Limits: Limits{Duration: 1}}},
	} {
		data, err := json.Marshal(a)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var a answer
		if json.Unmarshal(data, &a) != nil {
			return
		}
		if h := (&agent{name: "n0"}); h.setDescription(a.Agent) == nil && (h.host.Topology == nil || h.host.Topology.Derived == nil) {
			t.Errorf("%s: no topology", data)
		}
		turn, x := claimed()
		x.result = nil
		err := turn.recordStates(x.from, a.Jobs)
		if err != nil {
			x.from.err = err
		}
		x.to.began, x.to.end = &served{}, a.Served
		if len(a.Links) > 0 {
			x.from.links[0] = a.Links[0].Links
		}
		m := turn.measurement(context.Background(), x)
		for _, b := range m.Bandwidth {
			if b.Bytes < 0 || b.DurationNS < 0 || b.DurationNS > int64(2*time.Second) || len(b.SamplesBytesPerSec) > x.spec.MaxSamples || b.MeanBytesPerSec < 0 || b.MeanBytesPerSec > maxRate {
				t.Errorf("%s: %+v", data, b)
			}
		}
		if cpu := m.CPUSecondsPerGB; cpu != nil && (math.IsNaN(*cpu) || *cpu < 0) {
			t.Errorf("%s: %v", data, *cpu)
		}
		text := m.Waived + strings.Join(m.Notes, "")
		if m.Err != nil {
			text += m.Err.Error()
		}
		if strings.ContainsAny(text, "\x1b\x00\n") || len(m.Notes) > maxNotes+4 {
			t.Errorf("%s: %q", data, text)
		}
		for _, l := range m.Links {
			if l.Link != x.pair.Path[0] {
				t.Errorf("%s: link %q", data, l.Link)
			}
		}
	})
}
