package pathsel_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
	"github.com/topoctl/topoctl/testkit/importtest"
)

// digest is a host's decisions in a form that a reader can check line by line:
// every port with its role and verdict, then for each location the ports in
// order, those that are alike on one line, and what they carry together.
func digest(t testing.TB, h *pathsel.Host) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "transport %s\n", h.Transport())
	for _, p := range h.Ports() {
		fmt.Fprintf(&b, "port %s: %s (%s: %s)", p.Name, p.Role, p.RoleReason.Code, p.RoleReason.Text)
		for _, r := range p.Reasons {
			fmt.Fprintf(&b, "; %s: %s", r.Code, r.Text)
		}
		b.WriteString("\n")
	}
	for _, l := range h.Locations() {
		a, err := h.Affinity(l, nil)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n%s", l, ranks(a))
		for _, set := range [][]topo.ID{a.Preferred(), append(a.Preferred(), a.Available()...)} {
			c, err := h.Capacity(l, set)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "  %d together: %s\n", len(set), capacityText(c))
		}
	}
	return b.String()
}

// ranks lists candidates, neighbours that are alike on one line.
func ranks(a *pathsel.Affinity) string {
	var b strings.Builder
	var group []string
	head := ""
	flush := func() {
		if len(group) > 0 {
			fmt.Fprintf(&b, "  %s: %s\n", head, strings.Join(group, " "))
		}
		group = nil
	}
	for _, c := range a.Ranked {
		class, rate := c.Class.String(), "?"
		if c.BytesPerSec != nil {
			rate = c.BytesPerSec.String()
		}
		if h := fmt.Sprintf("%s %s %s %s", c.Verdict, class, rate, c.Basis); h != head {
			flush()
			head = h
		}
		group = append(group, c.Name)
	}
	flush()
	return b.String()
}

func capacityText(c *pathsel.Capacity) string {
	if c.BytesPerSec == nil {
		return "unknown"
	}
	return fmt.Sprintf("%s %s", c.BytesPerSec.String(), c.Basis)
}

func TestAffinityOfFixtures(t *testing.T) {
	for _, name := range fixtures.Names() {
		t.Run(name, func(t *testing.T) {
			golden.Check(t, "testdata/affinity/"+name+".txt", digest(t, fixture(t, name)))
		})
	}
}

func TestAffinityOfImports(t *testing.T) {
	for name, top := range importtest.Hosts(t) {
		t.Run(name, func(t *testing.T) {
			golden.Check(t, "testdata/affinity/import-"+name+".txt", digest(t, prepare(t, top, pathsel.Options{})))
		})
	}
}

// The first differing criterion is the reason that is shown, and it is true.
func TestReasonsAreTrue(t *testing.T) {
	for _, name := range fixtures.Names() {
		h := fixture(t, name)
		for _, l := range h.Locations() {
			a, err := h.Affinity(l, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range a.Ranked {
				if i == 0 {
					if c.Reason.Code != pathsel.CodeBest || c.Verdict != pathsel.Preferred {
						t.Errorf("%s %s: first is %s %s", name, l, c.Reason.Code, c.Verdict)
					}
					continue
				}
				checkReason(t, name+" "+string(l), &a.Ranked[i-1], &c)
			}
			for _, c := range a.Rejected {
				if c.Reason.Text == "" || slices.Contains([]pathsel.Code{pathsel.CodeBest, "name"}, c.Reason.Code) {
					t.Errorf("%s %s: %s is rejected without a reason: %+v", name, l, c.Name, c.Reason)
				}
			}
		}
	}
}

// checkReason: what the reason names differs, and what comes before it does not.
func checkReason(t *testing.T, where string, before, c *pathsel.Candidate) {
	t.Helper()
	differs := map[pathsel.Code]bool{
		"role":     before.Role != c.Role,
		"class":    before.Class != c.Class,
		"rate":     !cmp.Equal(before.BytesPerSec, c.BytesPerSec),
		"hops":     !cmp.Equal(before.Hops, c.Hops),
		"load":     before.Load != c.Load,
		"fallback": slices.ContainsFunc(before.Notes, func(r pathsel.Reason) bool { return r.Code == pathsel.CodeFallback }),
		"name":     true,
	}
	for _, code := range []pathsel.Code{"role", "class", "rate", "hops", "load", "fallback", "name"} {
		if c.Reason.Code == "usable" {
			return
		}
		if differs[code] {
			if c.Reason.Code != code {
				t.Errorf("%s: %s after %s: reason %s, the first difference is %s", where, c.Name, before.Name, c.Reason.Code, code)
			}
			return
		}
	}
}

func TestAffinityRefuses(t *testing.T) {
	h := fixture(t, "a10-2nic")
	for _, l := range []pathsel.Location{"", "gpu:2", "numa:0", "cpu:-1", "nic:mlx5_0"} {
		if _, err := h.Affinity(l, nil); err == nil || !strings.Contains(err.Error(), "want gpu:N or cpu:N") {
			t.Errorf("%q: %v", l, err)
		}
	}
	if _, err := pathsel.New(&topo.Topology{}, pathsel.Options{}); err == nil {
		t.Error("a topology that is not derived was taken")
	}
	if _, err := pathsel.New(fixturetest.Topology(t, "a10-2nic"), pathsel.Options{Transport: "ucx"}); err == nil {
		t.Error("an unknown transport was taken")
	}
	for nic, role := range map[topo.ID]pathsel.Role{"rdma:mlx5_9": pathsel.RoleData, "rdma:mlx5_0": "fast"} {
		if _, err := pathsel.New(fixturetest.Topology(t, "a10-2nic"), pathsel.Options{Roles: map[topo.ID]pathsel.Role{nic: role}}); err == nil {
			t.Errorf("role %s of %s was taken", role, nic)
		}
	}
}

// Load decides between ports that are equal in all else, and nothing more.
func TestLoadBreaksTies(t *testing.T) {
	h := fixture(t, "dgx-a100")
	busy, ok := h.Port("port:mlx5_0/1")
	if !ok {
		t.Fatal("no port mlx5_0/1")
	}
	load := make([]int64, len(h.Ports()))
	load[busy.Index] = 1 << 20
	a, err := h.Affinity("gpu:0", load)
	if err != nil {
		t.Fatal(err)
	}
	if first, second := a.Ranked[0], a.Ranked[1]; first.Name != "mlx5_1" || second.Name != "mlx5_0" ||
		second.Reason.Code != "load" || second.Verdict != pathsel.Preferred {
		t.Errorf("first %s, second %s: %+v", first.Name, second.Name, second.Reason)
	}
}
