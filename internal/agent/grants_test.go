package agent

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/trust"
)

const example = `
# who                       may
cert:*.prefill.example.net  read=weights,kv-* write=kv-*
cert:spiffe://site/*        topology
token:ops                   probe=10.0.0.0/8,node2:7411 topology
token:kv-*                  read=*   # and no more
token:off                   nothing
`

func TestPolicy(t *testing.T) {
	p, err := Parse([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	named := func(names ...string) trust.PeerID { return trust.PeerID{Certificate: names} }
	kv := []engine.RegionPermission{{Name: "weights", Grant: memory.PeerRead}, {Name: "kv-*", Grant: memory.PeerRead}, {Name: "kv-*", Grant: memory.PeerWrite}}
	probes := []engine.RegionPermission{{Name: "probe-*", Grant: memory.PeerRead | memory.PeerWrite}}
	for _, c := range []struct {
		id    trust.PeerID
		want  engine.Permissions
		probe bool
	}{
		{named("n1.prefill.example.net"), engine.Permissions{Regions: kv}, false},
		{named("spiffe://x/y", "N1.Prefill.Example.NET"), engine.Permissions{Regions: kv}, false},
		{named("n1.prefill.example.net.evil.net"), engine.Permissions{}, false},
		{named("spiffe://site/a"), engine.Permissions{Topology: true}, false},
		{named("spiffe://SITE/a"), engine.Permissions{}, false},
		{named("spiffe://site/a/b"), engine.Permissions{}, false},
		{trust.PeerID{Token: "ops"}, engine.Permissions{Regions: probes, Topology: true, Calls: true}, true},
		{trust.PeerID{Token: "kv-1"}, engine.Permissions{Regions: []engine.RegionPermission{{Name: "*", Grant: memory.PeerRead}}}, false},
		{trust.PeerID{Token: "off"}, engine.Permissions{}, false},
		// What is only claimed, or is another kind of name, counts for nothing.
		{trust.PeerID{Claimed: "ops"}, engine.Permissions{}, false},
		{trust.PeerID{Claimed: "n1.prefill.example.net"}, engine.Permissions{}, false},
		{trust.PeerID{Token: "n1.prefill.example.net"}, engine.Permissions{}, false},
		{named("ops", "kv-1"), engine.Permissions{}, false},
		{trust.PeerID{}, engine.Permissions{}, false},
	} {
		if diff := cmp.Diff(c.want, p.Permit(c.id)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c.id, diff)
		}
		if _, may := p.Probe(c.id); may != c.probe {
			t.Errorf("%+v: probes %v", c.id, may)
		}
	}
	// The first line that names a peer decides, and * names all.
	p, err = Parse([]byte("token:a nothing\n* topology\ntoken:b read=*\n"))
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]bool{"a": false, "b": true, "": true} {
		if got := p.Permit(trust.PeerID{Token: token}); got.Topology != want || got.Regions != nil {
			t.Errorf("token %q: %+v", token, got)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for data, want := range map[string]string{
		"":                                      "no lines",
		"# a comment\n":                         "no lines",
		"\n\nnode1 read=*\n":                    `line 3: "node1": want cert:NAME, token:NAME or *`,
		"cert: read=*":                          `line 1: "cert:": want`,
		"user:a read=*":                         `line 1: "user:a": want`,
		"token:a":                               "line 1: token:a: it does not say what",
		"* nothing\ntoken:a ready":              `line 2: "ready": want read=REGIONS`,
		"token:a read":                          `line 1: "read": want read=REGIONS`,
		"token:a read=":                         "line 1: an empty name",
		"token:a read=a,,b":                     "line 1: an empty name",
		"token:a read=kv-[":                     `line 1: "kv-[" is not a pattern`,
		"token:[ read=kv":                       `line 1: "[" is not a pattern`,
		"token:a nothing topology":              "line 1: token:a: nothing, and something",
		"token:a probe=10.0.0.0/33":             `line 1: probe: "10.0.0.0/33": want a network`,
		"token:a topology=yes":                  `line 1: "topology=yes": want`,
		strings.Repeat("* probe\n", maxRules+1): "line 10001: want at most",
	} {
		if p, err := Parse([]byte(data)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, %v; want %q", data, p, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(example))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse(data)
		if err != nil {
			return
		}
		if got := p.Permit(trust.PeerID{Claimed: "x"}); len(got.Regions) > 0 && !bytes.Contains(data, []byte("*")) {
			t.Errorf("%q: a peer that has proven nothing may %+v", data, got)
		}
	})
}

func TestReload(t *testing.T) {
	name := filepath.Join(t.TempDir(), "grants")
	write := func(s string) {
		if err := os.WriteFile(name, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("* nothing, please\n")
	if _, err := Open(name); err == nil || !strings.Contains(err.Error(), name+`: line 1: "nothing,"`) {
		t.Errorf("%v", err)
	}
	if _, err := Open(filepath.Dir(name)); err == nil || !strings.Contains(err.Error(), "want a regular file") {
		t.Errorf("%v", err)
	}
	write("* nothing\n")
	f, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	l := slog.New(slog.NewTextHandler(&log, nil))
	topology := func() bool { return f.Current().Permit(trust.PeerID{}).Topology }
	if f.Reload(l) || topology() || log.Len() > 0 {
		t.Errorf("nothing has changed: %s", log.String())
	}
	write("* topology\n")
	if !f.Reload(l) || !topology() {
		t.Error("a change is not taken up")
	}
	write("* topolgy\n")
	twice := func() bool { first := f.Reload(l); return f.Reload(l) || first }
	if twice() || !topology() || strings.Count(log.String(), "level=ERROR") != 1 || !strings.Contains(log.String(), "line 1") {
		t.Errorf("a file that cannot be read: %s", log.String())
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if twice() || !topology() || strings.Count(log.String(), "level=ERROR") != 2 {
		t.Errorf("a file that is gone: %s", log.String())
	}
}
