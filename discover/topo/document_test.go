package topo_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

func TestDecodeRefuses(t *testing.T) {
	good := string(encode(t, build(t, twoSockets)))
	tests := []struct{ name, doc, want string }{
		{"empty", "", "ends in the middle"},
		{"truncated", good[:len(good)/2], "truncated"},
		{"not ours", `{"a": 1}`, `no "schema" key`},
		{"another document of ours", `{"schema": "topoctl.matrix/v1"}`, `"topoctl.matrix/v1" is not a topology`},
		{"a newer major version", strings.Replace(good, "topology/v1", "topology/v2", 1), "use a newer topoctl"},
		{"a newer major version of another shape", `{"schema": "topoctl.topology/v2", "nodes": {"a": 1}}`, "use a newer topoctl"},
		{"garbage in the middle", good[:200] + "}}" + good[200:], "line "},
		{"two nodes of one name", strings.Replace(good, `"id":"numa:1"`, `"id":"numa:0"`, 1), `two nodes are called "numa:0"`},
		{"a node without a name", strings.Replace(good, `"id":"numa:1"`, `"id":""`, 1), "has no id"},
		{"facts outside the table", strings.Replace(good, `"facts":2}`, `"facts":999}`, 1), "the table has"},
		{"an unknown class", `{"schema":"topoctl.topology/v1","asserted":{"axis":["a"],"class":[["FOO"]]}}`, `"FOO"`},
		{"more devices than relations can be computed for", `{"schema":"topoctl.topology/v1","nodes":[` + strings.Repeat(`{"id":"","kind":"gpu"},`, 3000) + `{"id":"gpu:0","kind":"gpu"}]}`, "3001 GPUs, NICs and NUMA nodes: at most 2048"},
		{"an impossible link", `{"schema":"topoctl.topology/v1","nodes":[{"id":"pci:0000:01:00.0","kind":"pci","bdf":"0000:01:00.0","link":{"speed_mts":32000,"width":9223372036854775807}}]}`, "pci:0000:01:00.0: width 9223372036854775807: want 0 to 32"},
		{"a matrix that is not square", `{"schema":"topoctl.topology/v1","asserted":{"axis":["a","b"],"class":[["X"]]}}`, "1 rows for an axis of 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := topo.Decode([]byte(tt.doc))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v, want one with %q", err, tt.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
		})
	}
}

// A reader takes what a newer writer of the same major version adds.
func TestDecodeIgnoresWhatItDoesNotKnow(t *testing.T) {
	want := encode(t, build(t, twoSockets))
	doc := bytes.Replace(want, []byte(`"nodes":[`), []byte(`"news":{"a":[1]},"nodes":[{"id":"cxl:0","kind":"cxl","x":1},`), 1)
	doc = bytes.Replace(doc, []byte(`"role":"endpoint"`), []byte(`"role":"endpoint","colour":"red"`), 1)
	doc = bytes.Replace(doc, []byte(`"kind":"rdma"`), []byte(`"kind":"rdma","data_direct":"pci:0000:01:00.2"`), 1) // of an older v1
	got, err := topo.Decode(doc)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(encode(t, got), want) {
		t.Error("the known part changed")
	}
}

// A document whose parents form a circle, or that names parents and ends that
// are not there, is read without hanging; nothing is known across the hole.
func TestDecodeSurvivesBrokenTrees(t *testing.T) {
	doc := `{"schema":"topoctl.topology/v1","nodes":[
{"id":"pci:0000:01:00.0","kind":"pci","bdf":"0000:01:00.0","role":"","class":"0x060400","parent":"pci:0000:02:00.0"},
{"id":"pci:0000:02:00.0","kind":"pci","bdf":"0000:02:00.0","role":"","class":"0x060400","parent":"pci:0000:01:00.0"},
{"id":"pci:0000:03:00.0","kind":"pci","bdf":"0000:03:00.0","role":"","class":"0x030200","parent":"pci:0000:02:00.0"},
{"id":"gpu:0","kind":"gpu","index":0,"pci":"pci:0000:03:00.0","known_from":"pci"},
{"id":"gpu:1","kind":"gpu","index":1,"pci":"pci:nowhere","known_from":"pci"}],
"links":[{"id":"nvlink:a","kind":"nvlink","a":"gpu:7","b":"gpu:8","count":-3,"bytes_per_sec":null,"basis":"read"}]}`
	topology, err := topo.Decode([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	if got := topology.Relate("gpu:0", "gpu:1"); got.Class.Known() || got.Hops != nil {
		t.Errorf("across the hole: %+v", got)
	}
	if _, err := topology.Encode(); err != nil {
		t.Error(err)
	}
}

func TestEncodeKeepsOneNodePerLine(t *testing.T) {
	topology := build(t, twoSockets)
	data := encode(t, topology)
	if !json.Valid(data) {
		t.Fatal("not JSON")
	}
	if !bytes.HasPrefix(data, []byte(`{"schema":"topoctl.topology/v1",`)) {
		t.Errorf("schema is not first: %.60s", data)
	}
	for line := range bytes.Lines(data) {
		if n := bytes.Count(line, []byte(`"id":`)); n > 1 {
			t.Errorf("%d nodes on a line: %s", n, line)
		}
	}
}

func FuzzDecode(f *testing.F) {
	const small = "numa 0\nhb 0000:10 numa0\nport 10:01.0 < 0000:10\ngpu 11:00.0 < 10:01.0\nnic 11:00.1 < 10:01.0 a\n"
	for _, text := range []string{"numa 0", small, small + "fabric 0 18\nc2c 0 0"} {
		f.Add(encode(f, build(f, text)))
	}
	f.Add([]byte(`{"schema":"topoctl.topology/v1","asserted":{"axis":["a"],"class":[["X"]]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		topology, err := topo.Decode(data)
		if err != nil {
			return
		}
		first, err := topology.Encode()
		if err != nil {
			t.Fatalf("read but not written: %v", err)
		}
		again, err := topo.Decode(first)
		if err != nil {
			t.Fatalf("written but not read: %v\n%s", err, first)
		}
		second, err := again.Encode()
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("not stable (%v):\n%s\n%s", err, first, second)
		}
	})
}

// The order of keys means nothing: a document whose keys are sorted is the same one.
func TestDecodeTakesKeysInAnyOrder(t *testing.T) {
	for _, name := range []string{"dgx-h100", "gh200-4gpu", "sriov-pf-vf", "bonds"} {
		want, err := fixturetest.Topology(t, name).Encode()
		if err != nil {
			t.Fatal(err)
		}
		var keys map[string]any
		d := json.NewDecoder(bytes.NewReader(want))
		d.UseNumber()
		if err := d.Decode(&keys); err != nil {
			t.Fatal(err)
		}
		sorted, err := json.Marshal(keys)
		if err != nil {
			t.Fatal(err)
		}
		top, err := topo.Decode(sorted)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := top.Encode(); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// encoding/json writes and reads the document of every machine, whether a value or a pointer is in hand.
func TestEncodingJSON(t *testing.T) {
	for _, name := range slices.Concat(fixtures.Names(), fixtures.Captures()) {
		top := fixturetest.Topology(t, name)
		want := encode(t, top)
		var compact bytes.Buffer
		if err := json.Compact(&compact, want); err != nil {
			t.Fatal(err)
		}
		type inValue struct{ Host topo.Topology }
		for _, v := range []any{struct{ Host *topo.Topology }{top}, inValue{*top}} {
			data, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			var got struct{ Host json.RawMessage }
			var read inValue
			if err := errors.Join(json.Unmarshal(data, &got), json.Unmarshal(data, &read)); err != nil {
				t.Fatal(err)
			}
			var plain bytes.Buffer // json.Marshal has escaped what HTML minds
			json.HTMLEscape(&plain, compact.Bytes())
			if !bytes.Equal(got.Host, plain.Bytes()) {
				t.Errorf("%s: json.Marshal of %T gives another document than Encode", name, v)
			}
			decoded, err := topo.Decode(want)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(decoded, &read.Host); diff != "" {
				t.Errorf("%s: json.Unmarshal reads another topology than Decode (-Decode +Unmarshal)\n%s", name, diff)
			}
		}
	}
}

// What is no topology is an error and leaves the value alone; a pointer can be null.
func TestUnmarshalRefuses(t *testing.T) {
	for _, doc := range []string{`null`, `{}`, `[]`, `{"schema":"topoctl.topology/v2"}`, `{"GPUs":[]}`} {
		top := topo.Topology{Origin: "before"}
		if err := json.Unmarshal([]byte(doc), &top); err == nil || top.Origin != "before" {
			t.Errorf("%s: error %v, origin %q", doc, err, top.Origin)
		}
	}
	var in struct{ Host *topo.Topology }
	if err := json.Unmarshal([]byte(`{"Host":null}`), &in); err != nil || in.Host != nil {
		t.Errorf("a pointer that is null: %v, %v", in.Host, err)
	}
	if data, err := json.Marshal(in); err != nil || string(data) != `{"Host":null}` {
		t.Errorf("a pointer that is nil: %s, %v", data, err)
	}
}
