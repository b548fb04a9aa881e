package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/probe"
)

// controller is one that says what it wants to.
type controller struct {
	t *testing.T
	p *engine.Peer
}

func controllerOf(t *testing.T, h *host) *controller {
	t.Helper()
	e, err := engine.New(t.Context(), engine.Options{Name: "controller", Security: engine.Security{Credentials: trust.Secret(token)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	p, err := e.Open(limited(t), h.address())
	if err != nil {
		t.Fatal(err)
	}
	return &controller{t, p}
}

func (c *controller) say(r request) (*answer, error) {
	c.t.Helper()
	data, err := encodeRequest(&r)
	if err != nil {
		c.t.Fatal(err)
	}
	got, err := c.p.Call(limited(c.t), data)
	if err != nil {
		return nil, err
	}
	var a answer
	if err := json.Unmarshal(got, &a); err != nil {
		c.t.Fatal(err)
	}
	return &a, nil
}

func (c *controller) must(r request) *answer {
	c.t.Helper()
	a, err := c.say(r)
	if err != nil {
		c.t.Fatal(err)
	}
	return a
}

func (c *controller) refused(r request, want string) {
	c.t.Helper()
	if _, err := c.say(r); err == nil || !strings.Contains(err.Error(), want) {
		c.t.Errorf("%s: %v, want %q", r.Do, err, want)
	}
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

const (
	leaseA = "aaaaaaaaaaaaaaaaaaaaaaaa"
	leaseB = "bbbbbbbbbbbbbbbbbbbbbbbb"
)

// jobTo is a job to an agent's region.
func jobTo(h *host, region string) jobWant {
	return jobWant{ID: 0, Transport: "tcp", Bytes: 1 << 20, Host: "there", Addresses: []string{h.address()}, Epoch: h.e.Epoch(), Region: region, GiveUp: 20 * time.Second, Spec: long()}
}

// A controller that falls silent leaves nothing: its pairs stop, its memory is given back,
// and another one can have the agent.
func TestSilentController(t *testing.T) {
	checkLeaks(t)
	h := agentOf(t, "a", ServerOptions{Lease: time.Minute}, nil, nil)
	c := controllerOf(t, h)
	c.must(request{Do: doLease, Lease: leaseA, Controller: "first"})
	a := c.must(request{Do: doPrepare, Lease: leaseA, Round: 1, Regions: []region{{ID: 0, Bytes: 1 << 20}, {ID: 1, Bytes: 4096}}})
	c.must(request{Do: doConnect, Lease: leaseA, Round: 1, Jobs: []jobWant{jobTo(h, a.Regions[0].Name)}})
	c.must(request{Do: doStart, Lease: leaseA, Round: 1})
	eventually(t, "it measures", func() bool {
		return len(c.must(request{Do: doPoll, Lease: leaseA, Round: 1}).Jobs[0].Samples) > 0
	})
	if n := len(h.e.Regions()); n != 2 {
		t.Errorf("%d regions", n)
	}
	c.refused(request{Do: doLease, Lease: leaseB}, `"first" is measuring`)
	c.refused(request{Do: doPrepare, Lease: leaseB, Round: 1}, "this controller has no lease")
	h.s.mu.Lock()
	h.s.o.Lease = 200 * time.Millisecond // from its next word on, which is its last
	h.s.mu.Unlock()
	c.must(request{Do: doPoll, Lease: leaseA, Round: 1})
	eventually(t, "the lease ends", func() bool { _, err := c.say(request{Do: doLease, Lease: leaseB}); return err == nil })
	if n := len(h.e.Regions()); n != 0 {
		t.Errorf("%d regions are left", n)
	}
	eventually(t, "no data connection is left", func() bool { return h.e.Stats().ServedConns == 0 })
	c.refused(request{Do: doPoll, Lease: leaseA, Round: 1}, "this controller has no lease")
}

// A controller that is heard of keeps the lease, whatever it says.
func TestLeaseIsKept(t *testing.T) {
	checkLeaks(t)
	h := agentOf(t, "a", ServerOptions{Lease: time.Minute}, nil, nil)
	c := controllerOf(t, h)
	c.must(request{Do: doLease, Lease: leaseA})
	c.must(request{Do: doPrepare, Lease: leaseA, Round: 1, Regions: []region{{Bytes: 4096}}})
	for range 3 {
		h.s.mu.Lock()
		l := h.s.lease
		l.heard -= time.Minute // which has passed, and its timer runs a little late
		h.s.mu.Unlock()
		c.must(request{Do: doPoll, Lease: leaseA, Round: 1})
		h.s.expire(l)
	}
	c.must(request{Do: doPoll, Lease: leaseA, Round: 1})
	if n := len(h.e.Regions()); n != 1 {
		t.Errorf("%d regions", n)
	}
	c.must(request{Do: doRelease, Lease: leaseA})
	if n := len(h.e.Regions()); n != 0 {
		t.Errorf("%d regions are left", n)
	}
	c.must(request{Do: doLease, Lease: leaseB})
}

// Rounds come in order, one at a time; a forgotten one is ended by the next.
func TestRoundsInOrder(t *testing.T) {
	checkLeaks(t)
	h := agentOf(t, "a", ServerOptions{}, nil, nil)
	c := controllerOf(t, h)
	c.must(request{Do: doLease, Lease: leaseA})
	c.refused(request{Do: doConnect, Lease: leaseA, Round: 1}, "round 1 is not prepared")
	c.must(request{Do: doPrepare, Lease: leaseA, Round: 7, Regions: []region{{Bytes: 4096}}})
	c.refused(request{Do: doPrepare, Lease: leaseA, Round: 7}, "want a higher number")
	c.refused(request{Do: doStart, Lease: leaseA, Round: 6}, "round 6 is not prepared")
	a := c.must(request{Do: doPrepare, Lease: leaseA, Round: 8, Regions: []region{{ID: 3, Bytes: 8192}}})
	if r := h.e.Regions(); len(r) != 1 || r[0].Size() != 8192 || a.Regions[0].ID != 3 || a.Regions[0].Name != r[0].Name() {
		t.Errorf("%d regions, %+v", len(r), a.Regions)
	}
	c.must(request{Do: doConnect, Lease: leaseA, Round: 8, Jobs: []jobWant{jobTo(h, a.Regions[0].Name)}})
	c.refused(request{Do: doConnect, Lease: leaseA, Round: 8, Jobs: []jobWant{jobTo(h, a.Regions[0].Name)}}, "the round has begun")
	c.must(request{Do: doEnd, Lease: leaseA, Round: 8})
	c.refused(request{Do: doPoll, Lease: leaseA, Round: 8}, "round 8 is not prepared")
	c.refused(request{Do: "dance", Lease: leaseA, Round: 8}, "round 8")
	c.must(request{Do: doPrepare, Lease: leaseA, Round: 9})
	c.refused(request{Do: "dance", Lease: leaseA, Round: 9}, `unknown request "dance"`)
}

// The agent's own limits hold, whatever the controller wants.
func TestServerLimits(t *testing.T) {
	checkLeaks(t)
	h := agentOf(t, "a", ServerOptions{Limits: Limits{BytesPerSec: 1 << 20, Duration: time.Minute, MemoryBytes: 1 << 20}}, nil, nil)
	c := controllerOf(t, h)
	c.must(request{Do: doLease, Lease: leaseA})
	c.refused(request{Do: doPrepare, Lease: leaseA, Round: 1, Regions: []region{{ID: 0, Bytes: 1 << 19}, {ID: 1, Bytes: 1<<19 + 1}}}, "this agent allows 1048576 for probes")
	c.refused(request{Do: doPrepare, Lease: leaseA, Round: 2, Regions: []region{{Bytes: 1<<63 - 1}}}, "this agent allows 1048576")
	if n := len(h.e.Regions()); n != 0 {
		t.Errorf("%d regions are left of a round that was refused", n)
	}
	a := c.must(request{Do: doPrepare, Lease: leaseA, Round: 3, Regions: []region{{Bytes: 1 << 19}}})
	job := func(f func(j *jobWant)) request {
		j := jobTo(h, a.Regions[0].Name)
		j.Bytes, j.Spec.RateLimit = 1<<18, 1<<20
		f(&j)
		return request{Do: doConnect, Lease: leaseA, Round: 3, Jobs: []jobWant{j}}
	}
	c.refused(job(func(j *jobWant) { j.Bytes = 1<<19 + 1 }), "memory:")
	c.refused(job(func(j *jobWant) { j.Spec.RateLimit = 0 }), "rate: this agent moves at most 1048576 bytes/s")
	c.refused(job(func(j *jobWant) { j.Spec.RateLimit = 1<<20 + 1 }), "rate:")
	c.refused(job(func(j *jobWant) { j.Spec.PairTime = 0 }), "at most 1m0s")
	c.refused(job(func(j *jobWant) { j.Spec.PairTime = time.Hour }), "at most 1m0s")
	c.refused(job(func(j *jobWant) { j.Transport = "rdma" }), `transport "rdma"`)
	c.must(job(func(*jobWant) {}))
}

// The controller asks for no more than agents allow, and says what that does.
func TestControllerKeepsToLimits(t *testing.T) {
	checkLeaks(t)
	f := fleetOf(t, agentOf(t, "a", ServerOptions{Limits: Limits{BytesPerSec: 8 << 20, Duration: 5 * time.Second}}, nil, nil), agentOf(t, "b", ServerOptions{}, nil, nil),
		agentOf(t, "c", ServerOptions{Limits: Limits{MemoryBytes: 4096}}, nil, nil))
	s := quick()
	s.MaxSamples, s.MinSamples, s.SizesBytes = 3, 3, []int64{4 << 10}
	out := f.Round(limited(t), []probe.Pair{pair("n0", "n1"), pair("n1", "n0"), pair("n1", "n2")}, s, nil)
	for i, m := range out[:2] {
		if m.Err != nil || len(m.Notes) != 2 || !strings.Contains(m.Notes[0], "the pair gets 5s: n0 allows no more") || !strings.Contains(m.Notes[1], "limited to 4194304 bytes/s: n0 allows 8388608") {
			t.Errorf("%d: %v, %q", i, m.Err, m.Notes)
		} else if b := m.Bandwidth[0]; b.MeanBytesPerSec > 8<<20 {
			t.Errorf("%d: %d bytes/s", i, b.MeanBytesPerSec)
		}
	}
	if out[0].RateLimit != 4<<20 || out[2].RateLimit != 0 {
		t.Errorf("held to %d and %d bytes/s", out[0].RateLimit, out[2].RateLimit)
	}
	if err := out[2].Err; err != nil {
		t.Errorf("ops that fit: %v", err)
	}
	out = f.Round(limited(t), []probe.Pair{pair("n1", "n2"), pair("n0", "n1")}, quick(), nil)
	if out[0].Err != nil || !strings.Contains(out[0].Waived, "n2: it allows 4096 bytes of memory for each of 1 ends") {
		t.Errorf("ops that do not fit: %v, %q", out[0].Err, out[0].Waived)
	}
	if out[1].Err != nil || len(out[1].Bandwidth) != 2 {
		t.Errorf("the other pair: %v", out[1].Err)
	}
}

func TestParseRequestRefuses(t *testing.T) {
	job := func(f func(j *jobWant)) request {
		j := jobWant{Transport: "tcp", Bytes: 1, Host: "h", Addresses: []string{"1.2.3.4:5"}, Region: "r", GiveUp: time.Second, Spec: quick()}
		f(&j)
		return request{Do: doConnect, Jobs: []jobWant{j}}
	}
	spec := func(f func(s *probe.Spec)) request { return job(func(j *jobWant) { f(&j.Spec) }) }
	if data, err := encodeRequest(new(job(func(*jobWant) {}))); err != nil {
		t.Error(err)
	} else if _, err := parseRequest(data); err != nil {
		t.Error(err)
	}
	for want, r := range map[string]request{
		"4097 entries":             {Regions: make([]region, 4097)},
		"16384 elements of lists":  {Regions: make([]region, 4*maxJobs+1)},
		"lease":                    {Lease: strings.Repeat("x", 513)},
		"controller":               {Controller: "a\x1bb"},
		"region of 0 bytes":        {Regions: []region{{}}},
		"pair 5: want":             {Looks: []look{{ID: 5}, {ID: 5}}},
		"pair -1":                  {Regions: []region{{ID: -1, Bytes: 1}}},
		"memory location":          {Regions: []region{{Bytes: 1, Location: "cpu:-1"}}},
		`memory location "cpu"`:    {Regions: []region{{Bytes: 1, Location: "cpu"}}},
		`location "disk:1"`:        {Regions: []region{{Bytes: 1, Location: "disk:1"}}},
		"129 links":                {Looks: []look{{Path: make([]probe.LinkKey, 129)}}},
		"unreachable for 1ns":      job(func(j *jobWant) { j.GiveUp = 1 }),
		"0 addresses":              job(func(j *jobWant) { j.Addresses = nil }),
		"17 addresses":             job(func(j *jobWant) { j.Addresses = make([]string, 17) }),
		"-oProxy":                  job(func(j *jobWant) { j.Addresses = []string{"-oProxyCommand=x:1"} }),
		"memory of -1 bytes":       job(func(j *jobWant) { j.Bytes = -1 }),
		"local port":               job(func(j *jobWant) { j.LocalPort = "port:\x00" }),
		"warm-up of -1ns":          spec(func(s *probe.Spec) { s.Warmup = -1 }),
		"time for a pair of 25h":   spec(func(s *probe.Spec) { s.PairTime = 25 * time.Hour }),
		"samples of 1ns":           spec(func(s *probe.Spec) { s.SampleTime = 1 }),
		"0 to 0 samples":           spec(func(s *probe.Spec) { s.MinSamples, s.MaxSamples = 0, 0 }),
		"6 to 5 samples":           spec(func(s *probe.Spec) { s.MinSamples = 6 }),
		"65536 in all":             spec(func(s *probe.Spec) { s.MaxSamples = 40000 }),
		"samples of 0s":            spec(func(s *probe.Spec) { s.SampleTime = 0 }),
		"samples of 1000h":         spec(func(s *probe.Spec) { s.SampleTime = 1000 * time.Hour }),
		"1073741824 samples of":    spec(func(s *probe.Spec) { s.MaxSamples = 1 << 30 }),
		"sizes [0 1]":              spec(func(s *probe.Spec) { s.SizesBytes = []int64{0, 1} }),
		"sizes [2 1]":              spec(func(s *probe.Spec) { s.SizesBytes = []int64{2, 1} }),
		"1073741823 samples of":    spec(func(s *probe.Spec) { s.LatencySamples = 1<<30 - 1 }),
		"interval of -1":           spec(func(s *probe.Spec) { s.CI = -1 }),
		"65 sizes":                 spec(func(s *probe.Spec) { s.SizesBytes = make([]int64, 65) }),
		"sizes [4 4]: want":        spec(func(s *probe.Spec) { s.SizesBytes = []int64{4, 4} }),
		"ops of 1073741825 bytes":  spec(func(s *probe.Spec) { s.SizesBytes = []int64{1<<30 + 1} }),
		"neither sizes nor":        spec(func(s *probe.Spec) { s.SizesBytes, s.LatencySamples = nil, 0 }),
		"-1 samples of latency":    spec(func(s *probe.Spec) { s.LatencySamples = -1 }),
		"confidence interval of 2": spec(func(s *probe.Spec) { s.CI = 2 }),
		"rate limit of -1":         spec(func(s *probe.Spec) { s.RateLimit = -1 }),
	} {
		r.Schema = callSchema
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseRequest(data); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 600 {
			t.Errorf("%.100s: %v, want %q", data, err, want)
		}
	}
	for _, text := range []string{"", "null", "[]", `{"schema":"topoctl.probe-agent/v2"}`, `{"schema":"topoctl.probe-agent/v1","jobs":[{"spec":{"ci":NaN}}]}`, `{"schema":"topoctl.probe-agent/v1","round":1e400}`} {
		if _, err := parseRequest([]byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// Whatever bytes come, the agent answers or refuses, and holds no more than it may.
func FuzzRequests(f *testing.F) {
	for _, r := range []request{{Do: doDescribe}, {Do: doCPU}, {Do: doLease, Lease: leaseA}, {Do: doPrepare, Lease: leaseA, Round: 1, Regions: []region{{Bytes: 4096}}, Looks: []look{{Host: "h", Path: []probe.LinkKey{"h port:eth0 up"}}}},
		{Do: doConnect, Lease: leaseA, Round: 1, Jobs: []jobWant{{Transport: "none", Bytes: 1, Host: "h", Addresses: []string{"127.0.0.1:1"}, Region: "r", GiveUp: time.Second, Spec: quick()}}},
		{Do: doPoll, Lease: leaseA, Round: 1, Seen: []seen{{ID: 0, Samples: -5}}}, {Do: doStart, Lease: leaseA, Round: 1}, {Do: doStop, Lease: leaseA, Round: 1}, {Do: doEnd, Lease: leaseA, Round: 1}, {Do: doRelease, Lease: leaseA}} {
		data, err := encodeRequest(&r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	const most = 1 << 20
	s := NewServer(ServerOptions{Limits: Limits{MemoryBytes: most}, Transports: map[string]engine.TransportFactory{}})
	e, err := engine.New(context.Background(), engine.Options{Serve: engine.Serve{Answer: s.Answer}})
	if err != nil {
		f.Fatal(err)
	}
	s.Serve(e)
	f.Cleanup(func() { s.Close(); e.Close() })
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := s.Answer(context.Background(), trust.PeerID{}, data)
		var a answer
		if err == nil && (json.Unmarshal(got, &a) != nil || a.Schema != callSchema || a.Epoch != e.Epoch()) {
			t.Errorf("%q gives %q", data, got)
		}
		if err != nil && (len(err.Error()) > 4<<10 || strings.ContainsAny(err.Error(), "\x1b\x00")) {
			t.Errorf("%q gives the error %q", data, err)
		}
		sum := int64(0)
		for _, r := range e.Regions() {
			sum += r.Size()
		}
		if sum > most {
			t.Errorf("%d bytes are held", sum)
		}
	})
}

// Answer says so before there is an engine and after the end.
func TestAnswerWithoutEngine(t *testing.T) {
	s := NewServer(ServerOptions{})
	data := []byte(fmt.Sprintf(`{"schema":%q,"do":"describe"}`, callSchema))
	if _, err := s.Answer(t.Context(), trust.PeerID{}, data); err == nil || !strings.Contains(err.Error(), "starting or stopping") {
		t.Error(err)
	}
	s.Close()
	s.Close()
}

// However much there is to tell, an answer has a bound, and in the end all was told.
func TestPollInParts(t *testing.T) {
	now := &round{}
	const jobs, samples = 20, 20000
	for id := range jobs {
		j := &job{want: jobWant{ID: id}, state: stateDone, result: &result{}}
		for range samples {
			j.samples = append(j.samples, probe.Sample{SizeBytes: 1 << 20, BytesPerSec: 123456789012})
		}
		j.result.Bandwidth = []probe.Bandwidth{{SizeBytes: 1 << 20, SamplesBytesPerSec: make([]int64, samples)}}
		for i := range samples {
			j.result.Bandwidth[0].SamplesBytesPerSec[i] = 123456789012
		}
		now.jobs = append(now.jobs, j)
	}
	has := make([]seen, jobs)
	for id := range has {
		has[id].ID = id
	}
	polls, left := 0, jobs
	for ; left > 0 && polls < 1000; polls++ {
		said := now.poll(has)
		if data, err := json.Marshal(answer{Jobs: said}); err != nil || len(data) > 2*maxPollBytes {
			t.Fatalf("an answer of %d bytes, %v", len(data), err)
		}
		for _, j := range said {
			has[j.ID].Samples += len(j.Samples)
			if j.Result != nil {
				if has[j.ID].Result || has[j.ID].Samples != samples {
					t.Errorf("job %d: a result with %d samples told, twice: %v", j.ID, has[j.ID].Samples, has[j.ID].Result)
				}
				has[j.ID].Result = true
				left--
			}
		}
	}
	if left > 0 || polls < 10 {
		t.Errorf("%d results are missing after %d polls", left, polls)
	}
	for _, wrong := range []seen{{ID: 0, Samples: -1}, {ID: 0, Samples: 1 << 40}, {ID: -5}} {
		now.poll([]seen{wrong})
	}
}
