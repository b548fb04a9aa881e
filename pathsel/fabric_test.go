package pathsel_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/schematest"
)

// spines are leaves under two spines, one by four links and one by an unknown number.
const spines = `{"schema": "topoctl.fabric/v1", "hosts": [{"host": "*", "ports": [{"port": "mlx5_0", "leaf": "leaf-0"}]}],
 "uplinks": [{"leaf": "leaf-0", "spine": "spine-0", "count": 4, "bytes_per_sec": 50000000000, "cable": "red"},
  {"leaf": "leaf-0", "spine": "spine-1", "bytes_per_sec": null}, {"leaf": "leaf-1", "spine": "spine-0", "count": null}]}`

// railOnly is a fabric file that cables mlx5_0 to mlx5_7 of every host to rails
// of their own.
const railOnly = `{
 "schema": "topoctl.fabric/v1", "rail_only": true, "written_by": "a key that nobody knows",
 "hosts": [{"host": "*", "ports": [
  {"port": "mlx5_0/1", "rail": 0, "leaf": "leaf-0", "plane": 0},
  {"port": "mlx5_1", "rail": 1, "leaf": "leaf-1", "plane": 0},
  {"port": "ib2", "rail": 2, "leaf": "leaf-2"},
  {"port": "mlx5_3", "rail": 3, "leaf": "leaf-3", "plane": null},
  {"port": "mlx5_4", "rail": 4}, {"port": "mlx5_5", "rail": 5}, {"port": "mlx5_6", "rail": 6}, {"port": "mlx5_7", "rail": 7}
 ]}]}`

func parseFabric(t testing.TB, text string) *pathsel.Fabric {
	t.Helper()
	f, err := pathsel.ParseFabric([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestParseFabric(t *testing.T) {
	f := parseFabric(t, `{"schema":"topoctl.fabric/v1","hosts":[{"host":"node17","color":"red","ports":[
	 {"port":"mlx5_0/1","rail":3,"leaf":"leaf-3","plane":0,"cable":7},{"port":"eth0","rail":null}]},{"host":"*","ports":[]}]}`)
	three, none := 3, 0
	want := &pathsel.Fabric{Schema: pathsel.SchemaFabric, Hosts: []pathsel.FabricHost{
		{Host: "node17", Ports: []pathsel.FabricPort{{Port: "mlx5_0/1", Rail: &three, Leaf: "leaf-3", Plane: &none}, {Port: "eth0"}}},
		{Host: "*", Ports: []pathsel.FabricPort{}},
	}}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	rate := 50 * topo.GBPerSec
	uplinks := []pathsel.FabricUplink{{Leaf: "leaf-0", Spine: "spine-0", Count: 4, BytesPerSec: &rate}, {Leaf: "leaf-0", Spine: "spine-1"}, {Leaf: "leaf-1", Spine: "spine-0"}}
	if diff := cmp.Diff(uplinks, parseFabric(t, spines).Uplinks); diff != "" {
		t.Errorf("uplinks (-want +got)\n%s", diff)
	}
}

// uplink is a file with one uplink, or what stands for it.
func uplink(text string) string {
	return `{"schema":"topoctl.fabric/v1","hosts":[{"host":"*","ports":[]}],"uplinks":[` + text + `]}`
}

// badFabrics are files that are refused, and what the refusal says.
var badFabrics = []struct{ name, text, want string }{
	{"empty", ``, "fabric:"},
	{"cut off", "{\n\"schema\":", "line 2"},
	{"an array", `[]`, `fabric: found an array: want an object with "schema": "topoctl.fabric/v1" and "hosts"`},
	{"a number", `1e300`, `fabric: found a number: want an object`},
	{"hosts as an object", `{"schema":"topoctl.fabric/v1","hosts":{}}`, `fabric: hosts: found an object: want an array`},
	{"rail_only as text", `{"rail_only":"yes"}`, `fabric: rail_only: found text: want true or false`},
	{"a port as text", `{"schema":"topoctl.fabric/v1","hosts":[{"host":"n1","ports":["mlx5_0"]}]}`, `host "n1": ports[0]: port "": found text: want an object`},
	{"leaf as a number", `{"schema":"topoctl.fabric/v1","hosts":[{"host":"n1","ports":[{"port":"x","leaf":3}]}]}`, `port "x": leaf: found a number: want text in quotes`},
	{"a long rail", `{"schema":"topoctl.fabric/v1","hosts":[{"host":"n1","ports":[{"port":"x","rail":` + strings.Repeat("9", 900) + `}]}]}`, `999...: want a whole number`},
	{"trailing data", `{"schema":"topoctl.fabric/v1","hosts":[{"host":"*","ports":[]}]} {}`, "after top-level value"},
	{"no schema", `{"hosts":[]}`, `no "schema" key`},
	{"newer schema", `{"schema":"topoctl.fabric/v2","hosts":[]}`, "use a newer topoctl"},
	{"other schema", `{"schema":"topoctl.topology/v1"}`, "is no fabric file"},
	{"no hosts", `{"schema":"topoctl.fabric/v1"}`, "no hosts"},
	{"no host name", `{"schema":"topoctl.fabric/v1","hosts":[{"ports":[]}]}`, `hosts[0]: host "": want a name`},
	{"host twice", `{"schema":"topoctl.fabric/v1","hosts":[{"host":"a","ports":[]},{"host":"a","ports":[]}]}`, `host "a" is listed twice`},
	{"port twice", `{"schema":"topoctl.fabric/v1","hosts":[{"host":"a","ports":[{"port":"p"},{"port":"p"}]}]}`, `host "a": port "p" is listed twice`},
	{"no port name", `{"schema":"topoctl.fabric/v1","hosts":[{"host":"a","ports":[{"rail":1}]}]}`, `host "a": ports[0]: port "": "": want a name`},
	{"negative rail", `{"schema":"topoctl.fabric/v1","hosts":[{"host":"n1","ports":[{"port":"mlx5_0/1","rail":-3}]}]}`, `host "n1": port "mlx5_0/1": rail -3: want 0 to`},
	{"huge plane", `{"schema":"topoctl.fabric/v1","hosts":[{"host":"n1","ports":[{"port":"mlx5_0/1","plane":99999999}]}]}`, `plane 99999999: want 0 to`},
	{"rail as text", `{"schema":"topoctl.fabric/v1","hosts":[{"host":"n1","ports":[{"port":"mlx5_0/1","rail":"3"}]}]}`, `host "n1": ports[0]: port "mlx5_0/1": rail: found text: want a whole number without quotes, or null for unknown`},
	{"half a rail", `{"schema":"topoctl.fabric/v1","hosts":[{"host":"n1","ports":[{"port":"x","rail":1.5}]}]}`, `host "n1": ports[0]: port "x": rail: found number 1.5: want a whole number`},
	{"long name", `{"schema":"topoctl.fabric/v1","hosts":[{"host":"` + strings.Repeat("x", 300) + `","ports":[]}]}`, "300 bytes long"},
	{"long leaf", `{"schema":"topoctl.fabric/v1","hosts":[{"host":"n1","ports":[{"port":"x","leaf":"` + strings.Repeat("x", 300) + `"}]}]}`, `port "x": leaf: 300 bytes long`},
	{"many ports", `{"schema":"topoctl.fabric/v1","hosts":[{"host":"n1","ports":[` + strings.Repeat(`{},`, 600) + `{}]}]}`, `host "n1": 601 ports: at most 512`},
	{"many hosts", `{"schema":"topoctl.fabric/v1","hosts":[` + strings.Repeat(`{},`, 1<<16) + `{}]}`, "65537 hosts: at most 65536"},
	{"uplinks as an object", `{"schema":"topoctl.fabric/v1","hosts":[{"host":"*"}],"uplinks":{}}`, `fabric: uplinks: found an object: want an array`},
	{"an uplink as text", uplink(`"leaf-0"`), `fabric: uplinks[0]: found text: want an object`},
	{"no leaf", uplink(`{"spine":"s"}`), `uplinks[0]: leaf "": want a name`},
	{"no spine", uplink(`{"leaf":"l"}`), `uplinks[0]: spine "": want a name`},
	{"a long spine", uplink(`{"leaf":"l","spine":"` + strings.Repeat("x", 300) + `"}`), "300 bytes long"},
	{"a leaf that cannot be shown", uplink(`{"leaf":"l\u001b[2J","spine":"s"}`), `leaf "l\x1b[2J": want printable characters without space and >`},
	{"a spine with a space", uplink(`{"leaf":"l","spine":"s 1"}`), `spine "s 1": want printable characters`},
	{"one switch", uplink(`{"leaf":"l","spine":"l"}`), `leaf and spine are both "l"`},
	{"count 0", uplink(`{"leaf":"l","spine":"s","count":0}`), "count 0: want 1 to 65536"},
	{"count below 0", uplink(`{"leaf":"l","spine":"s","count":-1}`), "count -1: want 1 to 65536"},
	{"a large count", uplink(`{"leaf":"l","spine":"s","count":65537}`), "count 65537: want 1 to 65536"},
	{"many links of a leaf", uplink(`{"leaf":"l","spine":"s","count":65536},{"leaf":"l","spine":"t"}`), `uplinks[1]: leaf "l" has more than 65536 uplinks`},
	{"count as text", uplink(`{"leaf":"l","spine":"s","count":"4"}`), "uplinks[0]: count: found text: want a whole number"},
	{"no rate", uplink(`{"leaf":"l","spine":"s","bytes_per_sec":0}`), "bytes_per_sec 0: want 1 to 1000000000000, or null for unknown"},
	{"a large rate", uplink(`{"leaf":"l","spine":"s","bytes_per_sec":1000000000001}`), "bytes_per_sec 1000000000001: want 1 to"},
	{"a rate as text", uplink(`{"leaf":"l","spine":"s","bytes_per_sec":"400Gb/s"}`), "uplinks[0]: bytes_per_sec: found text: want a whole number without quotes, or null"},
	{"uplink twice", uplink(`{"leaf":"l","spine":"s"},{"leaf":"l","spine":"s"}`), `uplinks[1]: leaf "l" and spine "s" are listed twice: say with "count"`},
	{"many uplinks", uplink(strings.Repeat(`0,`, 1<<16) + `0`), "65537 uplinks: at most 65536"},
	{"too long", strings.Repeat(" ", 64<<20+1), "at most 67108864 are read"},
}

func TestParseFabricRefuses(t *testing.T) {
	for _, tt := range badFabrics {
		t.Run(tt.name, func(t *testing.T) {
			_, err := pathsel.ParseFabric([]byte(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if err != nil && (strings.Contains(err.Error(), "Go ") || len(err.Error()) > 300) {
				t.Errorf("not for people: %v", err)
			}
		})
	}
}

// A file and a host that do not fit together are never silent: the host's own
// entry must be right, the one for every host may name ports that this host has not.
func TestFabricAgainstHost(t *testing.T) {
	host := fixture(t, "hgx-h100-8nic")
	for _, tt := range []struct{ name, hosts, err, note string }{
		{"a port that the host has not", `[{"host":"hgx-h100-8nic","ports":[{"port":"mlx5_8"}]}]`, `host "hgx-h100-8nic", port "mlx5_8": the host has no such port: want one of eno1, eno2, mlx5_0`, ""},
		{"the same for every host", `[{"host":"*","ports":[{"port":"mlx5_8"}]}]`, "", `has no port "mlx5_8"`},
		{"its own entry wins", `[{"host":"*","ports":[{"port":"mlx5_8"}]},{"host":"hgx-h100-8nic","ports":[{"port":"mlx5_0","rail":0}]}]`, "", ""},
		{"one port by two names", `[{"host":"*","ports":[{"port":"mlx5_0"},{"port":"ib0"}]}]`, `ports "mlx5_0" and "ib0" are one port, mlx5_0`, ""},
		{"no entry", `[{"host":"other","ports":[]}]`, "", `no entry for host "hgx-h100-8nic": it has no effect (it has "other")`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := parseFabric(t, `{"schema":"topoctl.fabric/v1","hosts":`+tt.hosts+`}`)
			pair, err := pathsel.Connect(host, host, pathsel.PairOptions{Fabric: f})
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			set, err := pair.Lanes("gpu:0", "gpu:1")
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case tt.note == "" && len(set.Notes) > 0:
				t.Errorf("notes %v", set.Notes)
			case tt.note != "" && (len(set.Notes) != 1 || !strings.Contains(set.Notes[0].Text, tt.note)):
				t.Errorf("notes %v, want %q", set.Notes, tt.note)
			}
		})
	}
}

// The published schema takes what the parser takes and refuses what people get
// wrong most.
func TestFabricSchema(t *testing.T) {
	schema := schematest.Open(t, "schema/fabric.v1.schema.json")
	written, err := json.Marshal(parseFabric(t, railOnly))
	if err != nil {
		t.Fatal(err)
	}
	for _, good := range [][]byte{[]byte(railOnly), []byte(spines), written} {
		if err := schema.Validate(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	elsewhere := map[string]bool{"host twice": true, "port twice": true, "many hosts": true, "too long": true,
		"many links of a leaf": true, "one switch": true, "uplink twice": true, "many uplinks": true} // no schema can say that, or it takes long
	for _, tt := range badFabrics {
		if !elsewhere[tt.name] && schema.Validate([]byte(tt.text)) == nil {
			t.Errorf("%s: the schema takes it", tt.name)
		}
	}
}

func FuzzParseFabric(f *testing.F) {
	f.Add([]byte(railOnly))
	f.Add([]byte(spines))
	for _, tt := range badFabrics {
		if len(tt.text) < 1<<12 {
			f.Add([]byte(tt.text))
		}
	}
	host := prepare(f, fixturetest.Topology(f, "hgx-h100-8nic"), pathsel.Options{})
	f.Fuzz(func(t *testing.T, data []byte) {
		fabric, err := pathsel.ParseFabric(data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "fabric: ") {
				t.Errorf("error without a place: %v", err)
			}
			return
		}
		again, err := json.Marshal(fabric)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := pathsel.ParseFabric(again); err != nil || !cmp.Equal(fabric, back) {
			t.Errorf("read %+v, written and read again %+v: %v", fabric, back, err)
		}
		pair, err := pathsel.Connect(host, host, pathsel.PairOptions{Fabric: fabric})
		if err == nil {
			_, _ = pair.Lanes("gpu:0", "gpu:7")
		}
	})
}

// What Encode writes is read again as it was, with all that a discovery knows.
func TestFabricEncode(t *testing.T) {
	text := `{"schema":"topoctl.fabric/v1","rail_only":true,"hosts":[{"host":"n1","ports":[{"port":"mlx5_0/1","rail":0,"leaf":"A09","plane":1,"leaf_port":"17","known":"ibnetdiscover"}]}],
"uplinks":[{"leaf":"A09","spine":"S1","count":2,"bytes_per_sec":50000000000,"known":"ibnetdiscover","ports":[["33","1"],["34","2"]]}],
"switches":[{"switch":"A09","id":"sw:2c5eab0300b87b40","kind":"ib","model":"MQM9700","tier":0},{"switch":"S1","tier":1}],
"unjoined":[{"what":"adapter 0xe09d7303007a4bd8","leaf":"A09","leaf_port":"3","reason":"no host has this GUID","known":"ibnetdiscover"}]}`
	f := parseFabric(t, text)
	data, err := f.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if again := parseFabric(t, string(data)); !reflect.DeepEqual(again, f) {
		t.Errorf("%+v\nwant\n%+v", again, f)
	}
	for key, value := range map[string]string{"leaf_port": "17", "model": "MQM9700", "reason": "no host has this GUID"} {
		if !strings.Contains(string(data), fmt.Sprintf("%q:%q", key, value)) {
			t.Errorf("%s has no %s %q", data, key, value)
		}
	}
	for _, c := range []string{`[{"switch":""}]`, `[{"switch":"a"},{"switch":"a"}]`, `[{"switch":"a","id":"b"},{"switch":"b"}]`, `[{"switch":"a b"}]`, `[{"switch":"a","tier":-1}]`, `[{"switch":"a","tier":2000000000}]`, `{}`} {
		if _, err := pathsel.ParseFabric([]byte(`{"schema":"topoctl.fabric/v1","hosts":[{"host":"*"}],"switches":` + c + `}`)); err == nil {
			t.Errorf("switches %s are accepted", c)
		}
	}
}
