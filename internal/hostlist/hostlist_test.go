package hostlist

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/probe"
)

const most = 256

func TestParse(t *testing.T) {
	text := "# the rack\n\nn1 10.0.0.1\n  n2\t10.0.0.2:7000  # the new one\nnode3.example.org\nn4 fe80::1%eth0\r\n[::1]:9\nn6 ::2\nn7 [::3]\nlast localhost:1"
	got, err := Parse([]byte(text), most, "7411")
	want := []probe.Host{{Name: "n1", Address: "10.0.0.1:7411"}, {Name: "n2", Address: "10.0.0.2:7000"}, {Name: "node3.example.org", Address: "node3.example.org:7411"}, {Name: "n4", Address: "[fe80::1%eth0]:7411"},
		{Name: "[::1]:9", Address: "[::1]:9"}, {Name: "n6", Address: "[::2]:7411"}, {Name: "n7", Address: "[::3]:7411"}, {Name: "last", Address: "localhost:1"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\n%q\nwant\n%q", err, got, want)
	}
	var many strings.Builder
	for i := range most + 1 {
		fmt.Fprintf(&many, "h%d\n", i)
	}
	if got, err := Parse([]byte(many.String()[:strings.LastIndex(strings.TrimSpace(many.String()), "\n")]), most, "7411"); err != nil || len(got) != most {
		t.Errorf("%d hosts, %v", len(got), err)
	}
	for text, want := range map[string]string{
		"":                         "hosts: no host in 0 lines",
		"# nothing\n":              "hosts: no host in 1 line",
		"a 1.2.3.4\n\na 1.2.3.5":   `hosts: line 3: host "a" is in line 1 already`,
		"a 1.2.3.4\nb 1.2.3.4":     "hosts: line 2: address 1.2.3.4:7411 is in line 1 already",
		"a b c":                    "hosts: line 1: 3 words",
		"a 1.2.3.4:0":              `hosts: line 1: address "1.2.3.4:0": port "0": want 1 to 65535`,
		"a 1.2.3.4:65536":          `port "65536"`,
		"a host:":                  `port ""`,
		"a -oProxyCommand=x":       `line 1: address "-oProxyCommand=x"`,
		"-oProxyCommand":           `line 1: address "-oProxyCommand"`,
		"a x;reboot":               `line 1: address "x;reboot"`,
		"a fe80::1%$(x)":           `line 1: address`,
		"\x1b[2Jx 1.2.3.4":         `line 1: name "\x1b[2Jx": want a printable word`,
		"\xff 1.2.3.4":             "line 1: name",
		strings.Repeat("x", 256):   "a name of 256 bytes",
		many.String():              "line 257: more than 256 hosts",
		strings.Repeat("#", 2<<20): "2097152 bytes",
	} {
		if _, err := Parse([]byte(text), most, "7411"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

// Whatever is taken can be written and read again, and is safe to print and to pass on.
func FuzzHosts(f *testing.F) {
	for _, s := range []string{"n1 10.0.0.1\nn2 host:1 # x\n", "[::1]:9", "a fe80::1%eth0", "- -", "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		hosts, err := Parse(data, most, "7411")
		if err != nil {
			return
		}
		var b strings.Builder
		for _, h := range hosts {
			if strings.HasPrefix(h.Address, "-") || strings.ContainsAny(h.Address, " \t\n'\"\\$`;&|<>()") || len(h.Name) > maxName {
				t.Errorf("%q", h)
			}
			fmt.Fprintf(&b, "%s %s\n", h.Name, h.Address)
		}
		again, err := Parse([]byte(b.String()), most, "7411")
		if err != nil || !slices.Equal(again, hosts) {
			t.Errorf("%q becomes %q, %v", hosts, again, err)
		}
	})
}
