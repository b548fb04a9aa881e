package sources

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// quantum is a text as ibnetdiscover prints it of Quantum-2 switches: a managed leaf with its
// aggregation node, a spine, a host whose description has quotes, a dual-port adapter, a router.
const quantum = `#
# Topology file: generated on Tue Nov 24 05:50:46 2026
#
# Initiated from node e09d7303007a4bd8 port e09d7303007a4bd8

vendid=0x2c9
devid=0xd2f2
sysimgguid=0x2c5eab0300b87b40
switchguid=0x2c5eab0300b87b40(2c5eab0300b87b40)
Switch	65 "S-2c5eab0300b87b40"		# "MF0;A09-P1-IBLEAF-04-04:MQM9700/U1" enhanced port 0 lid 6 lmc 0
[1]	"H-e09d7303007a4bd8"[1](e09d7303007a4bd8) 		# "n1 mlx5_0" lid 22 4xNDR
[2]	"H-e09d7303007a4be0"[1](e09d7303007a4be0) 		# "the "best" host" lid 23 2xNDR
[3]	"H-e09d7303007a4be0"[2](e09d7303007a4be1) 		# "the "best" host" lid 24 4xHDR
[33][ext 17]	"S-2c5eab0300b87b80"[1][ext 1]		# "MF0;SPINE-1:MQM9700/U1" lid 7 4xNDR s=1 w=2 v=4 e=8
[34]	"S-2c5eab0300b87b80"[2]		# "MF0;SPINE-1:MQM9700/U1" lid 7 4xNDR
[65]	"H-2c5eab0300b87b48"[1](2c5eab0300b87b48) 		# "Mellanox Technologies Aggregation Node" lid 14 4xNDR

vendid=0x2c9
devid=0xd2f2
sysimgguid=0x2c5eab0300b87b80
switchguid=0x2c5eab0300b87b80(2c5eab0300b87b80)
Switch	65 "S-2c5eab0300b87b80"		# "MF0;SPINE-1:MQM9700/U1" enhanced port 0 lid 7 lmc 0
[1]	"S-2c5eab0300b87b40"[33]		# "MF0;A09-P1-IBLEAF-04-04:MQM9700/U1" lid 6 4xNDR
[2]	"S-2c5eab0300b87b40"[34]		# "MF0;A09-P1-IBLEAF-04-04:MQM9700/U1" lid 6 4xNDR
[3]	"R-2c5eab0300b87bc0"[1](2c5eab0300b87bc1) 		# "router" lid 9 4xHDR

vendid=0x2c9
devid=0x1021
sysimgguid=0xe09d7303007a4bd8
caguid=0xe09d7303007a4bd8
Ca	1 "H-e09d7303007a4bd8"		# "n1 mlx5_0"
[1](e09d7303007a4bd8) 	"S-2c5eab0300b87b40"[1]		# lid 22 lmc 0 "MF0;A09-P1-IBLEAF-04-04:MQM9700/U1" lid 6 4xNDR

vendid=0x2c9
devid=0x1021
sysimgguid=0xe09d7303007a4be0
caguid=0xe09d7303007a4be0
Ca	2 "H-e09d7303007a4be0"		# "the "best" host"
[1](e09d7303007a4be0) 	"S-2c5eab0300b87b40"[2]		# lid 23 lmc 0 "MF0;A09-P1-IBLEAF-04-04:MQM9700/U1" lid 6 2xNDR
[2](e09d7303007a4be1) 	"S-2c5eab0300b87b40"[3]		# lid 24 lmc 0 "MF0;A09-P1-IBLEAF-04-04:MQM9700/U1" lid 6 4xHDR

vendid=0x2c9
devid=0xcf09
sysimgguid=0x2c5eab0300b87b40
caguid=0x2c5eab0300b87b48
Ca	1 "H-2c5eab0300b87b48"		# "Mellanox Technologies Aggregation Node"
[1](2c5eab0300b87b48) 	"S-2c5eab0300b87b40"[65]		# lid 14 lmc 0 "MF0;A09-P1-IBLEAF-04-04:MQM9700/U1" lid 6 4xNDR

rtguid=0x2c5eab0300b87bc0
Rt	1 "R-2c5eab0300b87bc0"		# "router"
[1](2c5eab0300b87bc1) 	"S-2c5eab0300b87b80"[3]		# lid 9 lmc 0 "MF0;SPINE-1:MQM9700/U1" lid 7 4xHDR
`

// listing is the same as -p prints it; the last line is a port without a cable.
const listing = `CA    22  1 0xe09d7303007a4bd8 4x NDR - SW     6  1 0x2c5eab0300b87b40 ( 'n1 mlx5_0' - 'MF0;A09-P1-IBLEAF-04-04:MQM9700/U1' )
CA    23  1 0xe09d7303007a4be0 2x NDR - SW     6  2 0x2c5eab0300b87b40 ( 'the "best" host' - 'MF0;A09-P1-IBLEAF-04-04:MQM9700/U1' )
SW     6 33 0x2c5eab0300b87b40 4x NDR - SW     7  1 0x2c5eab0300b87b80 ( 'MF0;A09-P1-IBLEAF-04-04:MQM9700/U1' - 'MF0;SPINE-1:MQM9700/U1' )
SW     7  1 0x2c5eab0300b87b80 4x NDR - SW     6 33 0x2c5eab0300b87b40 ( 'MF0;SPINE-1:MQM9700/U1' - 'MF0;A09-P1-IBLEAF-04-04:MQM9700/U1' )
SW     7  4 0x2c5eab0300b87b80 ?? ???                                    'MF0;SPINE-1:MQM9700/U1'
`

// lines writes a subnet as the tests read it.
func lines(s *Subnet) []string {
	var out []string
	for i := range s.Nodes {
		n := &s.Nodes[i]
		what := string(n.Kind)
		if n.Aggregation() {
			what = "aggregation"
		}
		out = append(out, fmt.Sprintf("%s %s %q %s dev=%#x %v", what, n.GUID, n.Name(), n.Model(), n.DeviceID, n.PortGUIDs))
	}
	for i := range s.Links {
		l := &s.Links[i]
		rate, ok := l.BytesPerSec()
		out = append(out, fmt.Sprintf("%s[%d] %s[%d] %dx%s %d %v", s.Nodes[l.A.Node].Name(), l.A.Port, s.Nodes[l.B.Node].Name(), l.B.Port, l.Width, l.Speed, rate, ok))
	}
	slices.Sort(out)
	return append(out, s.Problems...)
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"text", quantum, []string{
			"A09-P1-IBLEAF-04-04[1] n1 mlx5_0[1] 4xNDR 50000000000 true", `A09-P1-IBLEAF-04-04[2] the "best" host[1] 2xNDR 25000000000 true`,
			"A09-P1-IBLEAF-04-04[33] SPINE-1[1] 4xNDR 50000000000 true", "A09-P1-IBLEAF-04-04[34] SPINE-1[2] 4xNDR 50000000000 true",
			`A09-P1-IBLEAF-04-04[3] the "best" host[2] 4xHDR 25000000000 true`, "A09-P1-IBLEAF-04-04[65] Mellanox Technologies Aggregation Node[1] 4xNDR 50000000000 true",
			"SPINE-1[3] router[1] 4xHDR 25000000000 true",
			`adapter e09d:7303:007a:4bd8 "n1 mlx5_0"  dev=0x1021 map[1:e09d:7303:007a:4bd8]`,
			`adapter e09d:7303:007a:4be0 "the \"best\" host"  dev=0x1021 map[1:e09d:7303:007a:4be0 2:e09d:7303:007a:4be1]`,
			`aggregation 2c5e:ab03:00b8:7b48 "Mellanox Technologies Aggregation Node"  dev=0xcf09 map[1:2c5e:ab03:00b8:7b48]`,
			`router 2c5e:ab03:00b8:7bc0 "router"  dev=0x0 map[1:2c5e:ab03:00b8:7bc1]`,
			`switch 2c5e:ab03:00b8:7b40 "A09-P1-IBLEAF-04-04" MQM9700 dev=0xd2f2 map[]`,
			`switch 2c5e:ab03:00b8:7b80 "SPINE-1" MQM9700 dev=0xd2f2 map[]`,
		}},
		{"-p", listing, []string{
			"A09-P1-IBLEAF-04-04[1] n1 mlx5_0[1] 4xNDR 50000000000 true", `A09-P1-IBLEAF-04-04[2] the "best" host[1] 2xNDR 25000000000 true`,
			"A09-P1-IBLEAF-04-04[33] SPINE-1[1] 4xNDR 50000000000 true",
			`adapter 0000:0000:0000:0000 "n1 mlx5_0"  dev=0x0 map[1:e09d:7303:007a:4bd8]`,
			`adapter 0000:0000:0000:0000 "the \"best\" host"  dev=0x0 map[1:e09d:7303:007a:4be0]`,
			`switch 2c5e:ab03:00b8:7b40 "A09-P1-IBLEAF-04-04" MQM9700 dev=0x0 map[]`,
			`switch 2c5e:ab03:00b8:7b80 "SPINE-1" MQM9700 dev=0x0 map[]`,
		}},
		{"cut short", "Switch\t4 \"S-0000000000200001\"\t\t# \"leaf\" base port 0 lid 0 lmc 0\n[1]\t\"H-0000000000100000\"[1](100001) \t\t# \"n1\" lid 0 4xWHAT\n[2]\t\"H-0000", []string{
			`adapter 0000:0000:0010:0000 "n1"  dev=0x0 map[1:0000:0000:0010:0001]`,
			"leaf[1] n1[1] 0x 0 false",
			`switch 0000:0000:0020:0001 "leaf"  dev=0x0 map[]`,
			`line 3: "[2]\t\"H-0000" is not understood`,
			"adapter 0000:0000:0010:0000 is at the end of a cable and has no entry of its own: the text may be cut short",
		}},
		{"two cables on one port", "Switch 4 \"S-1\" # \"a\"\n[1] \"S-2\"[1]\nSwitch 4 \"S-2\" # \"b\"\n[1] \"S-1\"[2]\nhello", []string{
			`switch 0000:0000:0000:0001 "a"  dev=0x0 map[]`,
			`switch 0000:0000:0000:0002 "b"  dev=0x0 map[]`,
			"line 4: port 1 of 0000:0000:0000:0002 is linked to two ports: neither is taken",
			`line 5: "hello" is not understood`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Parse([]byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if got := lines(s); !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"", "hello", `{"schema":"topoctl.fabric/v1"}`, "Switch 900 \"S-1\" # \"x\"", "SW 1 2 3", strings.Repeat("x", 1<<20)} {
		if s, err := Parse([]byte(text)); err == nil {
			t.Errorf("%.40q gives %v", text, lines(s))
		}
	}
}

// The order of entries, and which of two ends tells of a link, make no difference.
func TestOrder(t *testing.T) {
	want, err := Parse([]byte(quantum))
	if err != nil {
		t.Fatal(err)
	}
	entries := strings.Split(strings.TrimSpace(quantum), "\n\n")[1:]
	rapid.Check(t, func(t *rapid.T) {
		s, err := Parse([]byte(strings.Join(rapid.Permutation(entries).Draw(t, "order"), "\n\n")))
		if err != nil || !slices.Equal(lines(s), lines(want)) {
			t.Fatalf("%v\n%s", err, strings.Join(lines(s), "\n"))
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(quantum))
	f.Add([]byte(listing))
	f.Add([]byte("Switch 4 \"S-1\" # \"a\"\n[1] \"S-1\"[1]\n[0] \"S-1\"[2]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse(data)
		if err != nil {
			return
		}
		peers := map[End]bool{}
		for _, l := range s.Links {
			for _, e := range []End{l.A, l.B} {
				if e.Node < 0 || e.Node >= len(s.Nodes) || e.Port < 0 || e.Port > maxPorts || peers[e] {
					t.Fatalf("link %+v of %d nodes", l, len(s.Nodes))
				}
				peers[e] = true
			}
			if !s.before(l.A, l.B) {
				t.Fatalf("link %+v is the wrong way round", l)
			}
		}
		if len(s.Problems) > maxProblems+1 {
			t.Fatalf("%d problems", len(s.Problems))
		}
	})
}
