package fleet_test

import (
	"strings"
	"testing"

	"github.com/topoctl/topoctl/internal/fleet"
)

// What is written is read again, byte for byte.
func TestDocumentRoundTrip(t *testing.T) {
	one := 1
	f := &fleet.Fleet{Hosts: []fleet.Host{
		{Host: "n1", Status: fleet.OK, Source: "file n1.json", Document: "hosts/n1.json", SHA256: "00", Ports: []fleet.Port{{Port: "mlx5_0/1", Rail: &one}}},
		{Host: "n2", Status: fleet.NotReached, Reason: "connection refused", Source: "agent n2:7474"},
	}, Switches: []fleet.Switch{{ID: "sw:1"}, {ID: "sw:2"}}, Links: []fleet.Link{{A: "sw:1", B: "sw:2", Count: 2}}}
	data, err := f.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := fleet.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	again, err := back.Encode()
	if err != nil || string(again) != string(data) {
		t.Errorf("%v\n%s\n%s", err, data, again)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for in, want := range map[string]string{
		``:                                 "truncated",
		`[]`:                               "want an object",
		`{}`:                               "not a fleet document",
		`{"schema":"topoctl.fleet/v2"}`:    "use a newer topoctl",
		`{"schema":"topoctl.topology/v1"}`: "is not",
		`{"schema":"topoctl.fleet/v1","hosts":[{}]}`:                                                                       "a name is empty",
		`{"schema":"topoctl.fleet/v1","hosts":[{"host":"a","status":"fine"}]}`:                                             "status",
		`{"schema":"topoctl.fleet/v1","hosts":[{"host":"a","status":"ok"},{"host":"a","status":"ok"}]}`:                    "listed twice",
		`{"schema":"topoctl.fleet/v1","hosts":[{"host":"a","status":"ok","document":"../a.json"}]}`:                        "below the fleet's own folder",
		`{"schema":"topoctl.fleet/v1","hosts":[{"host":"a","status":"ok","document":"/etc/shadow"}]}`:                      "below the fleet's own folder",
		`{"schema":"topoctl.fleet/v1","hosts":[{"host":"a","status":"ok","ports":[{"port":"p"},{"port":"p"}]}]}`:           "listed twice",
		`{"schema":"topoctl.fleet/v1","hosts":[{"host":"a","status":"ok","ports":[{"port":"p","bytes_per_sec":-1}]}]}`:     "bytes_per_sec",
		`{"schema":"topoctl.fleet/v1","links":[{"a":"x","b":"y","count":1}]}`:                                              "not listed",
		`{"schema":"topoctl.fleet/v1","hosts":[{"host":"a","status":"ok","doctor":[{"code":"x","severity":"dreadful"}]}]}`: "severity",
		`{"schema":"topoctl.fleet/v1","switches":[{"id":"s","tier":2000000000}]}`:                                          "tier 2000000000: want 0 to 31",
		"{\"schema\":\"topoctl.fleet/v1\",\"x\":\"\xff\"}":                                                                 "UTF-8",
	} {
		if _, err := fleet.Decode([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
}

// Decode never panics, and what it takes it writes again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"schema":"topoctl.fleet/v1","hosts":[{"host":"a","status":"ok","document":"hosts/a.json","ports":[{"port":"mlx5_0/1","rail":1}]}],"switches":[{"id":"s"}],"links":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := fleet.Decode(data)
		if err != nil {
			return
		}
		first, err := got.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fleet.Decode(first); err != nil {
			t.Fatalf("%v\n%s", err, first)
		}
	})
}
