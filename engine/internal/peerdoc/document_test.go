package peerdoc_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/peerdoc"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/testkit/longtest"
)

func TestMain(m *testing.M) { longtest.Main(m) }

// descriptor is one with something of everything.
func descriptor() *peerdoc.Descriptor {
	return &peerdoc.Descriptor{
		Schema: peerdoc.SchemaPeer, Name: "n2 serve", Epoch: 1<<63 + 5, Sequence: 4, Machine: "3f", Boot: "9a",
		Topology: json.RawMessage(`{"schema":"topoctl.topology/v1"}`),
		Endpoints: []transport.Endpoint{
			{Transport: "tcp", Port: "net:eth0", Address: "10.0.0.1:7411"}, {Transport: "tcp", Port: "net:eth0", Address: "[2001:db8::1]:7411"},
			{Transport: "shm", Address: "@topoctl-1"},
		},
		Regions: []peerdoc.Region{
			{ID: 2, Name: "kv", Bytes: 1 << 40, Location: "gpu:0", Write: true, Keys: map[string]string{"rdma": "0x1234"}},
			{ID: 7<<32 | 1, Name: "weights", Bytes: 1, Address: 0x7f1234567000, Read: true},
		},
	}
}

// The document as other implementations see it.
func TestDescriptorDocument(t *testing.T) {
	data, err := descriptor().Encode()
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"schema":"topoctl.peer/v1","name":"n2 serve","epoch":"9223372036854775813","sequence":4,"machine":"3f","boot":"9a",` +
		`"topology":{"schema":"topoctl.topology/v1"},` +
		`"endpoints":[{"transport":"tcp","port":"net:eth0","address":"10.0.0.1:7411"},{"transport":"tcp","port":"net:eth0","address":"[2001:db8::1]:7411"},{"transport":"shm","address":"@topoctl-1"}],` +
		`"regions":[{"id":"2","name":"kv","bytes":1099511627776,"location":"gpu:0","read":false,"write":true,"keys":{"rdma":"0x1234"}},{"id":"30064771073","name":"weights","bytes":1,"address":"139716164218880","read":true,"write":false}]}`
	if string(data) != want {
		t.Errorf("%s\nwant\n%s", data, want)
	}
	d, err := peerdoc.ParseDescriptor(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(descriptor(), d); diff != "" {
		t.Errorf("read back (-want +got)\n%s", diff)
	}
	empty, err := (&peerdoc.Descriptor{Name: "n", Epoch: 1}).Encode()
	if err != nil || string(empty) != `{"schema":"topoctl.peer/v1","name":"n","epoch":"1","sequence":0,"endpoints":[],"regions":[]}` {
		t.Errorf("%s, %v", empty, err)
	}
	x := peerdoc.Delta{From: 4, To: 6, Closed: peerdoc.IDs{2}, Opened: []peerdoc.Region{{ID: 3, Name: "kv", Bytes: 5}},
		Endpoints: []transport.Endpoint{}, Topology: json.RawMessage("null")}
	data, err = x.Encode()
	if err != nil || string(data) != `{"from":4,"to":6,"closed":["2"],"endpoints":[],"topology":null,"opened":[{"id":"3","name":"kv","bytes":5,"read":false,"write":false}]}` {
		t.Errorf("%s, %v", data, err)
	}
}

// What a newer version adds is ignored.
func TestUnknownKeys(t *testing.T) {
	d, err := peerdoc.ParseDescriptor([]byte(`{"schema":"topoctl.peer/v1","name":"n","epoch":"1","sequence":2,"color":{"a":[1]},
		"topology":null,"endpoints":null,"regions":[{"id":"1","name":"r","bytes":2,"page_bytes":4096}]}`))
	if err != nil || len(d.Regions) != 1 || d.Endpoints == nil || d.Topology != nil {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := peerdoc.ParseDelta([]byte(`{"from":1,"to":2,"renamed":[]}`)); err != nil {
		t.Error(err)
	}
}

// What is refused, whoever says it.
func TestDescriptorIsChecked(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, tt := range []struct {
		name   string
		change func(d *peerdoc.Descriptor)
		want   string
	}{
		{"name", func(d *peerdoc.Descriptor) { d.Name = "" }, "name"},
		{"control character", func(d *peerdoc.Descriptor) { d.Name = "a\x1b[31m" }, "printable"},
		{"not UTF-8", func(d *peerdoc.Descriptor) { d.Name = "a\xff" }, "printable"},
		{"long name", func(d *peerdoc.Descriptor) { d.Name = long }, "300 bytes"},
		{"epoch", func(d *peerdoc.Descriptor) { d.Epoch = 0 }, "epoch 0"},
		{"boot", func(d *peerdoc.Descriptor) { d.Boot = "a\nb" }, "boot"},
		{"topology", func(d *peerdoc.Descriptor) { d.Topology = json.RawMessage("[]") }, "JSON object"},
		{"large topology", func(d *peerdoc.Descriptor) {
			d.Topology = json.RawMessage(`{"a":"` + strings.Repeat("a", peerdoc.MaxTopologyBytes) + `"}`)
		}, "topology: 3145"},
		{"transport", func(d *peerdoc.Descriptor) { d.Endpoints[0].Transport = "" }, "endpoint 0: transport"},
		{"address", func(d *peerdoc.Descriptor) { d.Endpoints[1].Address = "" }, "endpoint 1: address"},
		{"port", func(d *peerdoc.Descriptor) { d.Endpoints[1].Port = topo.ID(long) }, "endpoint 1: port"},
		{"an endpoint twice", func(d *peerdoc.Descriptor) { d.Endpoints[1] = d.Endpoints[0] }, "twice"},
		{"a negative rate", func(d *peerdoc.Descriptor) { d.Endpoints[0].BytesPerSec = -1 }, "endpoint 0: bytes_per_sec -1"},
		{"endpoints", func(d *peerdoc.Descriptor) { d.Endpoints = make([]transport.Endpoint, peerdoc.MaxEndpoints+1) }, "4097 endpoints"},
		{"region 0", func(d *peerdoc.Descriptor) { d.Regions[0].ID = 0 }, "ID 0"},
		{"a region twice", func(d *peerdoc.Descriptor) { d.Regions[0].ID = d.Regions[1].ID }, "in order"},
		{"order", func(d *peerdoc.Descriptor) { d.Regions[0], d.Regions[1] = d.Regions[1], d.Regions[0] }, "in order"},
		{"size", func(d *peerdoc.Descriptor) { d.Regions[1].Bytes = 0 }, "0 bytes"},
		{"negative size", func(d *peerdoc.Descriptor) { d.Regions[1].Bytes = -1 }, "-1 bytes"},
		{"address", func(d *peerdoc.Descriptor) { d.Regions[1].Address = math.MaxUint64 }, "below 2^64"},
		{"region name", func(d *peerdoc.Descriptor) { d.Regions[1].Name = "\u202eevil" }, "printable"},
		{"one name", func(d *peerdoc.Descriptor) { d.Regions[1].Name = d.Regions[0].Name }, "are both named"},
		{"key", func(d *peerdoc.Descriptor) { d.Regions[0].Keys = map[string]string{"rdma": strings.Repeat("k", 2000)} }, "key"},
		{"keys", func(d *peerdoc.Descriptor) {
			d.Regions[0].Keys = map[string]string{}
			for i := range 17 {
				d.Regions[0].Keys[fmt.Sprint(i)] = ""
			}
		}, "keys"},
		{"too many bytes in all", func(d *peerdoc.Descriptor) {
			for i := range 40000 {
				d.Regions = append(d.Regions, peerdoc.Region{ID: memory.ID(1<<40 + i), Name: fmt.Sprintf("%0100d", i), Bytes: 1})
			}
		}, "want at most 4194304"},
	} {
		d := descriptor()
		tt.change(d)
		if _, err := d.Encode(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: encode: %v: want %q", tt.name, err, tt.want)
		}
		data, err := json.Marshal(d)
		if err != nil || tt.name == "not UTF-8" { // JSON cannot say it
			continue
		}
		if _, err := peerdoc.ParseDescriptor(data); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: parse: %v: want %q", tt.name, err, tt.want)
		}
	}
	for text, want := range map[string]string{
		`{"schema":"topoctl.peer/v1","regions":{}}`: "want a list", `{"schema":"topoctl.peer/v1","regions":[{"keys":[]}]}`: "want an object",
		"": "JSON", "[]": "cannot unmarshal", "{}": "schema", `{"schema":"topoctl.peer/v2"}`: "want topoctl.peer/v1",
		`{"schema":"topoctl.peer/v1","name":"n","epoch":1}`:    "string",
		`{"schema":"topoctl.peer/v1","name":"n","epoch":"-1"}`: "-1",
		strings.Repeat(" ", peerdoc.MaxBytes+1):                "want at most",
	} {
		if _, err := peerdoc.ParseDescriptor([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v: want %q", text, err, want)
		}
	}
}

// Very many elements that say nothing cost no more than the document.
func TestDescriptorAmplification(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat("{},", 1_300_000), ",")
	keys := strings.TrimSuffix(strings.Repeat(`"":"",`, 650_000), ",")
	for text, want := range map[string]string{
		`{"regions":[` + many + `]}`:                                              "too many: at most 65536",
		`{"endpoints":[` + many + `]}`:                                            "too many: at most 65536",
		`{"regions":[{"keys":{` + keys + `}}]}`:                                   "more than 16 keys",
		`{"packed":[` + many + `]}`:                                               "too many: at most 65536",
		`{"packed":[{"rows":"` + strings.Repeat("AQAB", 900_000) + `"}]}`:         "more than 131072 regions",
		`{"packed":[{"rows":"` + strings.Repeat("AQAAAQ", 500_000) + `"}]}`:       "more than 131072 regions",
		`{"from":1,"to":2,"opened":[` + many + `]}`:                               "too many: at most 65536",
		`{"from":1,"to":2,"closed":["` + strings.Repeat(`1","`, 970_000) + `1"]}`: "too many: at most 131072",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var err error
		if strings.HasPrefix(text, `{"from"`) {
			_, err = peerdoc.ParseDelta([]byte(text))
		} else {
			_, err = peerdoc.ParseDescriptor([]byte(text))
		}
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v: want %q", text, err, want)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 60<<20 {
			t.Errorf("%.40s: %d bytes allocated for %d", text, n, len(text))
		}
	}
}

func TestDeltaIsChecked(t *testing.T) {
	for _, tt := range []struct {
		x    peerdoc.Delta
		want string
	}{
		{peerdoc.Delta{From: 3, To: 3}, "forward"},
		{peerdoc.Delta{From: 3, To: 2}, "forward"},
		{peerdoc.Delta{To: 1, Closed: peerdoc.IDs{0}}, "above 0"},
		{peerdoc.Delta{To: 1, Closed: peerdoc.IDs{3, 3}}, "in order"},
		{peerdoc.Delta{To: 1, Closed: make(peerdoc.IDs, peerdoc.MaxRegions+1)}, "131"},
		{peerdoc.Delta{To: 1, Opened: []peerdoc.Region{{ID: 1, Name: "r"}}}, "0 bytes"},
		{peerdoc.Delta{To: 1, Endpoints: []transport.Endpoint{{Transport: "tcp"}}}, "address"},
		{peerdoc.Delta{To: 1, Topology: json.RawMessage("1")}, "JSON object"},
	} {
		if _, err := tt.x.Encode(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: encode: %v: want %q", tt.want, err, tt.want)
		}
		data, err := json.Marshal(tt.x)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := peerdoc.ParseDelta(data); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("parse: %v: want %q", err, tt.want)
		}
	}
	for text, want := range map[string]string{"": "JSON", `{"closed":["x"],"to":1}`: "want a number", `{"closed":[1],"to":1}`: "cannot unmarshal"} {
		if _, err := peerdoc.ParseDelta([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v: want %q", text, err, want)
		}
	}
}

// When a delta does not follow: stale, or against the rules.
func TestApply(t *testing.T) {
	d := descriptor()
	for _, tt := range []struct {
		name  string
		x     peerdoc.Delta
		stale bool
		want  string
	}{
		{"for another sequence", peerdoc.Delta{From: 3, To: 5}, true, "we have 4"},
		{"for a later sequence", peerdoc.Delta{From: 5, To: 6}, true, "we have 4"},
		{"a region that we do not have", peerdoc.Delta{From: 4, To: 5, Closed: peerdoc.IDs{3}}, true, "closes 1 regions"},
		{"a region that we have", peerdoc.Delta{From: 4, To: 5, Opened: []peerdoc.Region{{ID: 2, Name: "x", Bytes: 1}}}, false, "none twice"},
		{"a name that we have", peerdoc.Delta{From: 4, To: 5, Opened: []peerdoc.Region{{ID: 9, Name: "kv", Bytes: 1}}}, false, "are both named"},
		{"backwards", peerdoc.Delta{From: 4, To: 4}, false, "forward"},
	} {
		got, err := d.Apply(&tt.x)
		if got != nil || err == nil || errors.Is(err, peerdoc.ErrStale) != tt.stale || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v: want %q", tt.name, err, tt.want)
		}
	}
	got, err := d.Apply(&peerdoc.Delta{From: 4, To: 9, Closed: peerdoc.IDs{2}, Opened: []peerdoc.Region{{ID: 5, Name: "kv", Bytes: 8}}})
	if err != nil || got.Sequence != 9 || len(got.Regions) != 2 || got.Regions[0].ID != 5 || len(got.Endpoints) != 3 || got.Topology == nil {
		t.Errorf("%+v, %v", got, err)
	}
	if diff := cmp.Diff(descriptor(), d); diff != "" {
		t.Errorf("the old one changed\n%s", diff)
	}
	other := descriptor()
	other.Epoch++
	other.Sequence++
	if _, err := peerdoc.Diff(d, other); err == nil {
		t.Error("a delta between two epochs")
	}
	if _, err := peerdoc.Diff(d, d); err == nil {
		t.Error("a delta between a sequence and itself")
	}
}

// drawState draws what changes in an engine's life.
func drawState(t *rapid.T, sequence uint64) *peerdoc.Descriptor {
	d := descriptor()
	d.Sequence, d.Regions, d.Endpoints = sequence, []peerdoc.Region{}, []transport.Endpoint{}
	d.Topology = rapid.SampledFrom([]json.RawMessage{nil, json.RawMessage(`{"a":1}`), json.RawMessage(`{"a":2}`)}).Draw(t, "topology")
	for i := range rapid.IntRange(0, 4).Draw(t, "endpoints") {
		if rapid.Bool().Draw(t, "endpoint") {
			d.Endpoints = append(d.Endpoints, transport.Endpoint{Transport: "tcp", Address: fmt.Sprint(i)})
		}
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "regions") {
		if rapid.Bool().Draw(t, "region") {
			r := peerdoc.Region{ID: memory.ID(i + 1), Name: fmt.Sprint("r", i), Bytes: 1, Read: rapid.Bool().Draw(t, "read")}
			if rapid.Bool().Draw(t, "keys") {
				r.Keys = map[string]string{"rdma": rapid.SampledFrom([]string{"1", "2"}).Draw(t, "key")}
			}
			d.Regions = append(d.Regions, r)
		}
	}
	return d
}

// Whatever changed: the difference, sent and applied, makes the one into the
// other.
func TestDiffAndApply(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := drawState(rt, 3), drawState(rt, 3+rapid.Uint64Range(1, 9).Draw(rt, "steps"))
		x, err := peerdoc.Diff(a, b)
		if err != nil {
			rt.Fatal(err)
		}
		data, err := x.Encode()
		if err != nil {
			rt.Fatal(err)
		}
		sent, err := peerdoc.ParseDelta(data)
		if err != nil {
			rt.Fatal(err)
		}
		for _, x := range []*peerdoc.Delta{x, sent} {
			got, err := a.Apply(x)
			if err != nil {
				rt.Fatalf("%v\n%s", err, data)
			}
			if diff := cmp.Diff(b, got); diff != "" {
				rt.Fatalf("(-want +got)\n%s\n%s", diff, data)
			}
		}
	})
}

// What a peer sends is refused or sound: it can be sent on, and says the same.
func FuzzParseDescriptor(f *testing.F) {
	data, err := descriptor().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"schema":"topoctl.peer/v1","name":"n","epoch":"1","topology":null,"regions":[{"id":"1","name":"\u0000","bytes":1}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := peerdoc.ParseDescriptor(data)
		if err != nil {
			return
		}
		again, err := d.Encode()
		if err != nil {
			if strings.Contains(err.Error(), "want at most") { // escapes make it longer
				return
			}
			t.Fatalf("parsed and cannot be sent: %v", err)
		}
		e, err := peerdoc.ParseDescriptor(again)
		if err != nil {
			t.Fatalf("%v\n%s", err, again)
		}
		e.Topology, d.Topology = nil, nil // the same but for spaces
		if diff := cmp.Diff(d, e, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	})
}

// No delta makes a descriptor that would be refused.
func FuzzDelta(f *testing.F) {
	for _, text := range []string{
		`{"from":4,"to":5,"closed":["2"],"opened":[{"id":"3","name":"kv","bytes":8}],"endpoints":[],"topology":null}`,
		`{"from":4,"to":5,"topology":{"a":1}}`,
		`{"from":4,"to":5,"opened":[{"id":"2","name":"kv","bytes":8}]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := peerdoc.ParseDelta(data)
		if err != nil {
			return
		}
		if _, err := x.Encode(); err != nil && !strings.Contains(err.Error(), "want at most") {
			t.Fatalf("parsed and cannot be sent: %v", err)
		}
		d, err := descriptor().Apply(x)
		if err != nil {
			return
		}
		if _, err := d.Encode(); err != nil && !strings.Contains(err.Error(), "want at most") {
			t.Fatalf("applied and cannot be sent: %v", err)
		}
	})
}
