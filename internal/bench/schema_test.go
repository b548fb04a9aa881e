package bench

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/pick"
	"github.com/topoctl/topoctl/testkit/schematest"
)

const schemaFile = "schema/bench.v1.schema.json"

var generator = schematest.Generator{Types: map[reflect.Type]schematest.Object{
	reflect.TypeFor[pick.Policy](): {"enum": []any{pick.Adaptive, pick.RoundRobin, pick.Random, pick.First, pick.Mooncake}},
}}

// The published schema says what the types say, and reports keep to it.
func TestSchema(t *testing.T) {
	schematest.Compare(t, schemaFile, generator.Document(Schema, reflect.TypeFor[Report]()))
	schema := schematest.Open(t, schemaFile)
	full := fullReport()
	for name, r := range map[string]*Report{"full": full, "empty": {Schema: Schema, Memory: Memory{Notes: []string{}}, Unavailable: []string{}, Results: []Result{}, Ceilings: []Ceiling{}}} {
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		bad := strings.Replace(string(data), `"policy":"adaptive"`, `"policy":"guess"`, 1)
		if name == "full" && schema.Validate([]byte(bad)) == nil {
			t.Error("a policy that does not exist is valid")
		}
	}
}

// fullReport is made the way a run makes it.
func fullReport() *Report {
	r := &run{o: Options{Threads: 1, InFlight: 2, Batch: 2}, memory: 1 << 20}
	r.report = &Report{Schema: Schema, Tool: topo.Tool{Name: "topoctl", Version: "1"}, Host: "a", StartedAt: time.Unix(0, 0).UTC(), Complete: true,
		Peer: Peer{Name: "b", Address: "10.0.0.1:1", Region: "bench"}, Memory: Memory{Notes: []string{}}, Unavailable: []string{"rdma is not available"}, CPUs: 2}
	c := &cell{r: r, op: engine.Write, size: 4096, transport: "tcp", ops: 4, rounds: 1,
		samples:  samples{{bytes: 8192, elapsed: time.Second, self: time.Second, peer: time.Second, peerKnown: true}, {bytes: 8192, elapsed: time.Second, peerKnown: true}},
		lanes:    []LaneResult{{Lane: "lo", Transport: "tcp", Bytes: 16384, Connection: "tcp a > b, reno, no checksum"}},
		verified: &Check{Bytes: 16384}, faulted: &Fault{Lane: "lo"}}
	c.latency.add(1000)
	copied := samples{{bytes: 1 << 20, elapsed: time.Second, peerKnown: true}}
	g := &group{op: engine.Write, size: 4096, cells: []*cell{c}, ceilings: []*ceiling{{kind: RawSocket, streams: 1, unavailable: "the peer is another host"},
		{kind: Memcpy, streams: 1, samples: copied}, {kind: Memcpy, streams: 2}}}
	r.addResults(g)
	return r.report
}

func TestResults(t *testing.T) {
	r := fullReport()
	x := r.Results[0]
	if x.BytesPerSec != 8192 || x.OpsPerSec != 2 || x.DurationNS != 2e9 || x.OfRawSocket != nil || x.OfMemcpy == nil || *x.OfMemcpy != 0.0078 ||
		x.CongestionControl == nil || *x.CongestionControl != "reno" || x.CPUSecondsPerGB != nil || x.Latency.P999 != nil || *x.Latency.P50 != 1000 {
		t.Errorf("%+v", x)
	}
	if raw := r.Ceilings[0]; raw.BytesPerSec != nil || raw.Reason == nil || *raw.Reason != "the peer is another host" {
		t.Errorf("%+v", raw)
	}
	if r.Bad() {
		t.Error("a good report is bad")
	}
	r.Results[0].Verified.MismatchedBytes = 1
	if !r.Bad() {
		t.Error("a wrong byte is good")
	}
}

func TestCongestionWord(t *testing.T) {
	for text, want := range map[string]string{
		"tcp 127.0.0.1:1 > 127.0.0.1:2, cubic, crc32-ieee": "cubic", "tcp a > b, reno": "reno", "bbr": "bbr",
		"shm, cubically": "", "tcp a > b, unknown congestion control": "", "": "",
	} {
		if got := congestionWord.FindString(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestFindLane(t *testing.T) {
	lanes := []string{"eth0 > n2:eth0", "eth0 > n2:eth1", "eth1 > n2:eth1", "lo"}
	for name, want := range map[string]string{"lo": "lo", "eth1": "eth1 > n2:eth1", "eth0 > n2:eth1": "eth0 > n2:eth1"} {
		if got, err := findLane(lanes, name); got != want || err != nil {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"eth0", "eth2", ""} {
		if got, err := findLane(lanes, name); err == nil || !strings.Contains(err.Error(), `"eth1 > n2:eth1", "lo"`) {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
}
