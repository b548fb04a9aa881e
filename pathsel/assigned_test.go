package pathsel_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

// pairOf joins two machines of a kind.
func pairOf(t testing.TB, name string) *pathsel.Pair {
	t.Helper()
	p, err := pathsel.Connect(side{name: name}.host(t), side{name: name}.other().host(t), pathsel.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func portIDs(names ...string) []topo.ID {
	var out []topo.ID
	for _, n := range names {
		out = append(out, topo.ID("port:"+n+"/1"))
	}
	return out
}

// A rank's own ports carry its transfers. Those of the others step in when its
// own fail, and say whose they are not.
func TestLanesOfARank(t *testing.T) {
	p := pairOf(t, "dgx-h100")
	set, err := p.LanesOf("cpu:0", "cpu:0", pathsel.LaneOptions{Local: portIDs("mlx5_4", "mlx5_5"), Remote: portIDs("mlx5_4", "mlx5_5")})
	if err != nil {
		t.Fatal(err)
	}
	if set.Chosen != 2 || set.BytesPerSec == nil || *set.BytesPerSec != 100*topo.GBPerSec || len(set.Notes) != 0 {
		t.Fatalf("chosen %d, %v, %v\n%s", set.Chosen, set.BytesPerSec, set.Notes, set.Text())
	}
	for _, l := range set.Lanes {
		ours := slices.Contains(portIDs("mlx5_4", "mlx5_5"), l.Local) && slices.Contains(portIDs("mlx5_4", "mlx5_5"), l.Remote)
		if ours == (l.Reason.Code == "not-assigned") || l.Verdict == pathsel.Chosen && !ours {
			t.Errorf("%s to %s: %s, %+v", l.LocalName, l.RemoteName, l.Verdict, l.Reason)
		}
	}
	for text, names := range map[string][2]string{
		"mlx5_0 of dgx-h100 is not assigned: only for when assigned ports fail":                              {"mlx5_0", "mlx5_4"},
		"mlx5_3 of dgx-h100-b is not assigned: only for when assigned ports fail":                            {"mlx5_5", "mlx5_3"},
		"neither mlx5_0 of dgx-h100 nor mlx5_3 of dgx-h100-b is assigned: only for when assigned ports fail": {"mlx5_0", "mlx5_3"},
	} {
		i := slices.IndexFunc(set.Lanes, func(l pathsel.Lane) bool { return l.LocalName == names[0] && l.RemoteName == names[1] })
		if i < 0 || set.Lanes[i].Reason.Text != text {
			t.Errorf("want %q for lane %v (%d)", text, names, i)
		}
	}
}

// Ports that meet nothing assigned get others, and that is said; ports that the
// host does not have are refused.
func TestLanesOfPortsThatDoNotMeet(t *testing.T) {
	rails := pairOf(t, "a10-2nic") // each NIC in a network of its own
	for _, tt := range []struct {
		name          string
		local, remote []topo.ID
		want, note    string
	}{
		{"they meet", portIDs("mlx5_1"), portIDs("mlx5_1"), "mlx5_1>mlx5_1", ""},
		{"local only", portIDs("mlx5_1"), nil, "mlx5_1>mlx5_1", ""},
		{"remote only", nil, portIDs("mlx5_1"), "mlx5_1>mlx5_1", ""},
		{"other rails: our own port, the peer's other", portIDs("mlx5_1"), portIDs("mlx5_0"), "mlx5_1>mlx5_1",
			"no lane joins two assigned ports (local mlx5_1, remote mlx5_0): all ports of the remote host are used"},
	} {
		set, err := rails.LanesOf("cpu:0", "cpu:0", pathsel.LaneOptions{Local: tt.local, Remote: tt.remote})
		if err != nil {
			t.Fatal(err)
		}
		if got := chosen(set); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		if note := notes(set); note != tt.note {
			t.Errorf("%s: note %q, want %q", tt.name, note, tt.note)
		}
	}
	down := side{name: "dgx-h100-port-down"}
	p, err := pathsel.Connect(down.host(t), down.other().host(t), pathsel.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	broken := ""
	for _, port := range p.Local().Ports() {
		if port.RDMA() && !port.Usable && port.Reasons[0].Code == pathsel.CodePortDown {
			broken = port.Name
		}
	}
	set, err := p.LanesOf("gpu:4", "gpu:4", pathsel.LaneOptions{Local: portIDs(broken)})
	if err != nil || set.Chosen == 0 || notes(set) != "no lane joins two assigned ports (local "+broken+"): all ports are used" {
		t.Errorf("the only assigned port is down: %v, %q", err, notes(set))
	}
	for _, o := range []pathsel.LaneOptions{{Local: portIDs("mlx5_77")}, {Remote: portIDs("mlx5_77")}} {
		if _, err := rails.LanesOf("cpu:0", "cpu:0", o); err == nil || !strings.Contains(err.Error(), `"port:mlx5_77/1"`) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func chosen(set *pathsel.LaneSet) string {
	var out []string
	for _, l := range set.Lanes[:set.Chosen] {
		out = append(out, l.LocalName+">"+l.RemoteName)
	}
	return strings.Join(out, " ")
}

func notes(set *pathsel.LaneSet) string {
	out := ""
	for _, n := range set.Notes {
		if n.Code == "not-assigned" {
			out += n.Text
		}
	}
	return out
}

// Whatever is assigned: the lanes are those of Lanes, only assigned ones are
// chosen and they come first; with everything assigned the answer is that of
// Lanes.
func TestLanesOfProperties(t *testing.T) {
	var pairs []*pathsel.Pair
	for _, name := range []string{"dgx-h100", "a10-2nic", "bonds", "hgx-h100-8nic", "lab-softrdma", "gb200-tray"} {
		pairs = append(pairs, pairOf(t, name))
	}
	h := side{name: "hgx-h100-8nic"}.host(t)
	same, err := pathsel.Connect(h, h, pathsel.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pairs = append(pairs, same)
	restricted := 0
	rapid.Check(t, func(rt *rapid.T) {
		p := rapid.SampledFrom(pairs).Draw(rt, "pair")
		src, dst := rapid.SampledFrom(p.Local().Locations()).Draw(rt, "from"), rapid.SampledFrom(p.Remote().Locations()).Draw(rt, "to")
		o := pathsel.LaneOptions{Local: somePorts(rt, p.Local()), Remote: somePorts(rt, p.Remote())}
		all, err1 := p.Lanes(src, dst)
		set, err2 := p.LanesOf(src, dst, o)
		if err := errors.Join(err1, err2); err != nil {
			rt.Fatal(err)
		}
		if set.Chosen == 0 || len(set.Lanes) != len(all.Lanes) {
			rt.Fatalf("%d lanes, %d chosen; %d without restriction", len(set.Lanes), set.Chosen, len(all.Lanes))
		}
		if notes(set) == "" {
			restricted++
			checkAssigned(rt, set, o)
		}
		everything := pathsel.LaneOptions{}
		for _, port := range p.Local().Ports() {
			everything.Local = append(everything.Local, port.ID)
		}
		same, err := p.LanesOf(src, dst, everything)
		if err != nil {
			rt.Fatal(err)
		}
		x, _ := json.Marshal(all)
		if y, _ := json.Marshal(same); string(x) != string(y) {
			rt.Fatalf("all ports assigned:\n%s\nLanes:\n%s", y, x)
		}
	})
	if restricted < 5 && !testing.Short() { // -short draws five cases
		t.Errorf("%d restricted sets: too few to tell", restricted)
	}
}

func somePorts(rt *rapid.T, h *pathsel.Host) []topo.ID {
	var out []topo.ID
	for _, p := range h.Ports() {
		if rapid.IntRange(0, 2).Draw(rt, "assigned") == 0 {
			out = append(out, p.ID)
		}
	}
	return out
}

func checkAssigned(rt *rapid.T, set *pathsel.LaneSet, o pathsel.LaneOptions) {
	before := true
	for i, l := range set.Lanes {
		ours := (len(o.Local) == 0 || slices.Contains(o.Local, l.Local)) && (len(o.Remote) == 0 || slices.Contains(o.Remote, l.Remote))
		if ours && !before || i < set.Chosen && !ours {
			rt.Fatalf("lane %d (%s to %s, %s) of %+v", i, l.Local, l.Remote, l.Verdict, o)
		}
		before = ours
		if !ours && l.Reason.Code != "not-assigned" {
			rt.Fatalf("lane %d: %+v", i, l.Reason)
		}
	}
}
