package measure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/probe"
)

// lying lets an agent say something else than it would.
func lying(s *Server, wrap func(answer) answer) func(context.Context, trust.PeerID, []byte) ([]byte, error) {
	if wrap == nil {
		return s.Answer
	}
	return func(ctx context.Context, from trust.PeerID, request []byte) ([]byte, error) {
		data, err := s.Answer(ctx, from, request)
		if err != nil {
			return nil, err
		}
		var a answer
		if err := json.Unmarshal(data, &a); err != nil {
			return nil, err
		}
		return json.Marshal(wrap(a))
	}
}

// results lets f change each result that an agent gives.
func results(f func(r *result)) func(answer) answer {
	return func(a answer) answer {
		for i := range a.Jobs {
			if r := a.Jobs[i].Result; r != nil {
				f(r)
			}
		}
		return a
	}
}

// last is what is claimed of the largest ops.
func last(r *result) *probe.Bandwidth { return &r.Bandwidth[len(r.Bandwidth)-1] }

// What an agent claims and what cannot be is refused, and the error names the agent.
func TestImpossibleClaims(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *result)
		want   string
	}{
		"bytes":             {func(r *result) { last(r).Bytes *= 1000 }, "is impossible"},
		"negative bytes":    {func(r *result) { last(r).Bytes = -1 }, "is impossible"},
		"negative duration": {func(r *result) { last(r).DurationNS = -5 }, "is impossible"},
		"long duration":     {func(r *result) { last(r).DurationNS += int64(time.Hour); last(r).Bytes *= 1 << 20 }, "there were"},
		"no time":           {func(r *result) { last(r).DurationNS, last(r).Bytes = 1, 1 }, "is impossible"},
		"another size":      {func(r *result) { last(r).SizeBytes = 12345 }, "these sizes were not requested"},
		"a size twice":      {func(r *result) { r.Bandwidth[0] = *last(r) }, "these sizes were not requested"},
		"more sizes":        {func(r *result) { r.Bandwidth = append(r.Bandwidth, *last(r)) }, "3 sizes, 2 were requested"},
		"a million samples": {func(r *result) { last(r).SamplesBytesPerSec = make([]int64, 1000000/5) }, "200000 samples"},
		"negative samples":  {func(r *result) { last(r).SamplesBytesPerSec[0] = -1 }, "is impossible"},
		"endless rate":      {func(r *result) { last(r).SamplesBytesPerSec[0] = 1 << 62 }, "is impossible"},
		"why it stopped":    {func(r *result) { last(r).Stopped = "\x1b[2J" }, `stopped for "\x1b[2J"`},
		"no samples":        {func(r *result) { *last(r) = probe.Bandwidth{SizeBytes: last(r).SizeBytes} }, "no sample, and no reason"},
		"nothing at all":    {func(r *result) { *r = result{} }, "neither figures nor a reason"},
		"round trips":       {func(r *result) { r.Latency.RTT.N = 1 << 40 }, "round trips of"},
		"negative latency":  {func(r *result) { r.Latency.RTT.Min = -4 }, "round trips of -4"},
		"half a round trip": {func(r *result) { r.Latency.OneWay.P50, r.Latency.OneWay.Min = 0, 0 }, "half a round trip"},
		"processor time":    {func(r *result) { r.CPUSecondsPerGB = new(-1.0) }, "processor time"},
		"NUMA node":         {func(r *result) { r.Binding.FromMemory = new(-7) }, "NUMA node -7"},
	} {
		turn, x := claimed()
		x.spec.SizesBytes = []int64{4 << 10, 64 << 10}
		x.result.Bandwidth = append([]probe.Bandwidth{probe.NewBandwidth(4<<10, []int64{1e9, 1e9, 1e9}, 15e6, 15e6, probe.StoppedCI)}, x.result.Bandwidth...)
		if m := turn.measurement(t.Context(), x); m.Err != nil {
			t.Fatal(m.Err)
		}
		c.change(x.result)
		if err := turn.measurement(t.Context(), x).Err; err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "n0: ") || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// The other pairs of the round are measured beside one whose agent lies.
func TestLies(t *testing.T) {
	checkLeaks(t)
	var lie atomic.Pointer[func(answer) answer]
	lie.Store(new(results(func(*result) {})))
	f := fleetOf(t, agentOf(t, "honest", ServerOptions{}, nil, nil), agentOf(t, "liar", ServerOptions{}, nil, func(a answer) answer { return (*lie.Load())(a) }))
	for name, c := range map[string]struct {
		wrap func(answer) answer
		want string
	}{
		"bytes": {results(func(r *result) { last(r).Bytes *= 1000 }), "is impossible"},
		"live samples": {func(a answer) answer {
			for i := range a.Jobs {
				a.Jobs[i].Samples = make([]probe.Sample, 1000)
			}
			return a
		}, "1000 more samples"},
		"a live sample": {func(a answer) answer {
			for i := range a.Jobs {
				a.Jobs[i].Samples = []probe.Sample{{SizeBytes: 4 << 10, BytesPerSec: -3}}
			}
			return a
		}, "a sample of -3 bytes/s"},
		"other jobs": {func(a answer) answer {
			for i := range a.Jobs {
				a.Jobs[i].ID = 1 << 40
			}
			return a
		}, "does not report pair"},
	} {
		t.Run(name, func(t *testing.T) {
			lie.Store(&c.wrap)
			out := f.Round(limited(t), []probe.Pair{pair("n1", "n0"), pair("n0", "n1")}, quick(), nil)
			if err := out[0].Err; err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "n1: ") || strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("%v, want %q", err, c.want)
			}
			if out[1].Err != nil {
				t.Errorf("the other pair: %v", out[1].Err)
			}
		})
	}
}

// Texts of agents cannot take over a terminal, and memory of another size is not used.
func TestLiesOfTargets(t *testing.T) {
	checkLeaks(t)
	small := func(a answer) answer {
		for i := range a.Regions {
			a.Regions[i].Bytes /= 2
		}
		return a
	}
	f := fleetOf(t, agentOf(t, "honest", ServerOptions{}, nil, nil), agentOf(t, "liar", ServerOptions{}, nil, small),
		agentOf(t, "loud", ServerOptions{}, nil, results(func(r *result) {
			r.Notes = []string{"a\x1b[31m note\nof two lines"}
			r.Error = "broken \x07"
		})))
	out := f.Round(limited(t), []probe.Pair{pair("n0", "n1"), pair("n2", "n0")}, quick(), nil)
	if err := out[0].Err; err == nil || !strings.Contains(err.Error(), "n1: memory") || !strings.Contains(err.Error(), "were requested") {
		t.Errorf("half of the memory: %v", err)
	}
	if err := out[1].Err; err == nil || !strings.HasSuffix(err.Error(), `n2: broken \a`) || out[1].Notes[0] != `a\x1b[31m note of two lines` || len(out[1].Bandwidth) != 2 {
		t.Errorf("%v, %q, %d", err, out[1].Notes, len(out[1].Bandwidth))
	}
}

// More than the target has served is refused; the error names both, and their figures.
func TestServedLess(t *testing.T) {
	checkLeaks(t)
	f := fleetOf(t, agentOf(t, "a", ServerOptions{}, nil, nil), agentOf(t, "b", ServerOptions{}, nil, results(func(r *result) {
		for i := range r.Bandwidth {
			b := &r.Bandwidth[i]
			b.Bytes *= 50
			for k := range b.SamplesBytesPerSec {
				b.SamplesBytesPerSec[k] *= 50
			}
		}
	})))
	out := f.Round(limited(t), []probe.Pair{pair("n1", "n0"), pair("n0", "n1")}, quick(), nil)
	if err := out[0].Err; !errors.Is(err, errClaim) || !strings.Contains(err.Error(), "n1: its result is refused: n0 says that it took ") || !strings.Contains(err.Error(), " bytes, n1: ") {
		t.Errorf("%v", err)
	}
	if out[1].Err != nil || len(out[1].Notes) != 0 {
		t.Errorf("the honest one: %v, %q", out[1].Err, out[1].Notes)
	}
}

// An agent whose answers are none takes no part any more.
func TestStrangeAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		change func(from, data []byte) []byte
		want   string
	}{
		"epoch": {func(_, d []byte) []byte { return bytes.Replace(d, []byte(`"epoch":"`), []byte(`"epoch":"1`), 1) }, "an answer of epoch 1"},
		"schema": {func(_, d []byte) []byte {
			return bytes.Replace(d, []byte("probe-agent/v1"), []byte("probe-agent/v2"), 1)
		}, `schema "topoctl.probe-agent/v2": want topoctl.probe-agent/v1`},
		"NaN":   {func(_, d []byte) []byte { return bytes.Replace(d, []byte(`"bytes":`), []byte(`"bytes":NaN,"x":`), 1) }, "invalid character 'N'"},
		"bytes": {func(_, d []byte) []byte { return []byte("\x00\x1b[2J") }, "not a valid answer"},
		"cut":   {func(_, d []byte) []byte { return d[:len(d)/2] }, "not a valid answer"},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			s := NewServer(ServerOptions{Credentials: trust.Secret(token), Targets: LoopbackTargets, Limits: Limits{MemoryBytes: 4 << 20}})
			e, err := engine.New(t.Context(), engine.Options{Security: engine.Security{Credentials: trust.Secret(token)}, Serve: engine.Serve{Answer: func(ctx context.Context, from trust.PeerID, request []byte) ([]byte, error) {
				data, err := s.Answer(ctx, from, request)
				if bytes.Contains(request, []byte(`"do":"poll"`)) && bytes.Contains(data, []byte(`"bytes":`)) {
					data = c.change(request, data)
				}
				return data, err
			}}})
			if err != nil {
				t.Fatal(err)
			}
			s.Serve(e)
			defer e.Close()
			defer s.Close()
			f := fleetOf(t, agentOf(t, "a", ServerOptions{}, nil, nil), &host{e: e, s: s})
			out := f.Round(limited(t), []probe.Pair{pair("n1", "n0"), pair("n0", "n1")}, quick(), nil)
			if err := out[0].Err; err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "n1: ") || strings.ContainsAny(err.Error(), "\x00\x1b") {
				t.Errorf("%v, want %q", err, c.want)
			}
			if len(out[0].Bandwidth) == 0 {
				t.Log("the result came before any sample was told") // both are right
			}
			if h := f.Hosts()[1]; !strings.Contains(h.Error, c.want) {
				t.Errorf("host error %q", h.Error)
			}
			began := time.Now()
			out = f.Round(limited(t), []probe.Pair{pair("n0", "n1")}, long(), nil)
			if out[0].Err == nil || time.Since(began) > within/2 {
				t.Errorf("the next round: %v", out[0].Err)
			}
		})
	}
}

// Clocks may be stepped: no time of day travels.
func TestNoTimeOfDayTravels(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var walk func(x reflect.Type)
	walk = func(x reflect.Type) {
		if seen[x] {
			return
		}
		seen[x] = true
		if x == reflect.TypeFor[time.Time]() {
			t.Error("there is a time.Time in what controllers and agents say")
		}
		switch x.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(x.Elem())
		case reflect.Struct:
			for i := range x.NumField() {
				if x.Field(i).Tag.Get("json") != "-" {
					walk(x.Field(i).Type)
				}
			}
		}
	}
	walk(reflect.TypeFor[request]())
	walk(reflect.TypeFor[answer]())
	if len(seen) < 15 {
		t.Errorf("looked at %d types", len(seen))
	}
}
