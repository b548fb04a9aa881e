package sources

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mac is a MAC of veth, other in every run of lldpd.
var mac = regexp.MustCompile(`([0-9a-f]{2}:){5}[0-9a-f]{2}`)

func lldpLines(r *LLDPReport) []string {
	var out []string
	if r.Local != nil {
		out = append(out, fmt.Sprintf("local %s %q %v", r.Local.ID, r.Local.Name, r.Local.Enabled))
	}
	for i := range r.Neighbors {
		n := &r.Neighbors[i]
		out = append(out, fmt.Sprintf("%s %s %q %q %v %s %s %s", n.Interface, n.Chassis.ID,
			n.Chassis.Name, n.Chassis.Description, n.Chassis.Enabled, n.PortType, n.Port(), n.PortDescr))
	}
	return out
}

// TestCaptured reads what lldpcli of Debian 12 printed of lldpd on two veth pairs.
func TestCaptured(t *testing.T) {
	two := []string{
		`eth0 MAC "leaf1" "test b" [Station] mac swp1 swp1`,
		`eth1 MAC "leaf1" "test b" [Station] mac swp2 swp2`,
	}
	local := []string{`local MAC "n1" [Station]`}
	for name, want := range map[string][]string{"two.json": two, "two.json0": two, "one.json": two[1:], "none.json": nil, "chassis.json": local, "chassis.json0": local} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		r, err := ParseLLDP(data)
		if err != nil {
			t.Fatal(name, err)
		}
		got := lldpLines(r)
		for i := range got {
			got[i] = mac.ReplaceAllString(got[i], "MAC")
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// What switches say that lldpd on veth does not: interface names as port IDs, no name, several
// documents in one file.
func TestLldpParse(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"ifname", `{"lldp":{"interface":[{"eth0":{"via":"LLDP","chassis":{"leaf1":{"id":{"type":"mac","value":"44:38:39:00:00:01"},"descr":["SONiC","x"],"capability":[{"type":"Bridge","enabled":true},{"type":"Router","enabled":true}]}},"port":{"id":{"type":"ifname","value":"Ethernet1/4"},"descr":"to n1"}}}]}}`,
			[]string{`eth0 44:38:39:00:00:01 "leaf1" "SONiC" [Bridge Router] ifname Ethernet1/4 to n1`}},
		{"no name", `{"lldp":{"interface":{"eth0":{"via":"LLDP","chassis":{"id":{"type":"local","value":"x"},"descr":"d"},"port":{"id":{"type":"local","value":"17"}}}}}}`,
			[]string{`eth0 x "" "d" [] local 17 `}},
		{"one capability", `{"lldp":{"interface":{"eth0":{"chassis":{"id":{"type":"local","value":"x"},"capability":{"type":"Bridge","enabled":true}}}}}}`,
			[]string{`eth0 x "" "" [Bridge]   `}},
		{"two documents", `{"local-chassis":{"chassis":{"leaf1":{"id":{"type":"mac","value":"a"}}}}} {"lldp":{}}`, []string{`local a "leaf1" []`}},
		{"without an ID", `{"lldp":{"interface":[{"eth0":{"chassis":{"x":{}}}},{"eth1":7},[],null]}}`, nil},
	} {
		r, err := ParseLLDP([]byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := lldpLines(r); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
	deep := strings.Repeat(`{"lldp":`, 100) + strings.Repeat("}", 100)
	for _, text := range []string{"", "[]", "{}", `{"schema":"topoctl.fabric/v1"}`, "hello", `{"lldp":{`, deep,
		`{"local-chassis":{"chassis":{"n1":{"id":{"type":"mac","value":"a"}}}}} {"local-chassis":{"chassis":{"n2":{"id":{"type":"mac","value":"b"}}}}}`} {
		if r, err := ParseLLDP([]byte(text)); err == nil {
			t.Errorf("%.40q gives %v", text, lldpLines(r))
		}
	}
}

func FuzzLldpParse(f *testing.F) {
	for _, name := range []string{"two.json", "two.json0", "one.json", "chassis.json"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseLLDP(data)
		if err != nil {
			return
		}
		for i := range r.Neighbors {
			n := &r.Neighbors[i]
			if n.Chassis.ID == "" || max(len(n.Interface), len(n.Chassis.ID), len(n.Chassis.Name), len(n.PortID), len(n.PortDescr)) > maxText {
				t.Fatalf("%+v", n)
			}
		}
	})
}
