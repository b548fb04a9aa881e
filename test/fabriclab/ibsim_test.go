package fabriclab_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/fleet/export"
	"github.com/topoctl/topoctl/internal/fleet/sources"
	"github.com/topoctl/topoctl/test/fabriclab"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// tools is where .ci/run unpacks Debian's packages, "" where it did not.
const tools = "TOPOCTL_FABRIC_TOOLS"

// tool is a program of Debian's, or the test is skipped with the reason.
func tool(t *testing.T, path string) string {
	t.Helper()
	root := os.Getenv(tools)
	if root == "" {
		t.Skip("COULD NOT CHECK: " + tools + " is not set: .ci/run fabric brings Debian's ibsim-utils, infiniband-diags, lldpd, slurmctld and openssh-server")
	}
	file := filepath.Join(root, path)
	if _, err := os.Stat(file); err != nil {
		t.Skipf("COULD NOT CHECK: %v", err)
	}
	return file
}

// threeTiers is two pods of two groups each, joined by cores.
var threeTiers = fabriclab.Shape{Hosts: 16, Rails: 4, HostsPerGroup: 4, HostsPerPod: 8, Spines: 2, Cores: 2}

// shapes are the fabrics that are simulated.
var shapes = map[string]fabriclab.Shape{
	"rails":             {Hosts: 16, Rails: 8, HostsPerGroup: 8, Spines: 4},
	"fat tree":          {Hosts: 12, Rails: 4, ByHost: true, HostsPerGroup: 3, Spines: 2, Uplinks: 3},
	"two planes":        {Hosts: 8, Rails: 8, Planes: 2, HostsPerGroup: 4, Spines: 2},
	"rails and storage": {Hosts: 8, Rails: 8, Storage: 2, HostsPerGroup: 8, Spines: 2},
	"rail only":         {Hosts: 4, Rails: 8, HostsPerGroup: 4},
	"three tiers":       threeTiers,
	"256 hosts":         {Hosts: 256, Rails: 8, HostsPerGroup: 32, Spines: 16, Uplinks: 2},
}

// simulate runs ibsim on a fabric, and ibnetdiscover once in each network that is separate.
func simulate(t *testing.T, f *fabriclab.Fabric, args ...string) (texts [][]byte) {
	t.Helper()
	sim, discover := tool(t, "usr/bin/ibsim"), tool(t, "usr/sbin/ibnetdiscover")
	found, err := filepath.Glob(filepath.Join(os.Getenv(tools), "usr/lib/*/umad2sim/libumad2sim.so"))
	if err != nil || len(found) != 1 {
		t.Skipf("COULD NOT CHECK: no libumad2sim.so below %s", os.Getenv(tools))
	}
	dir := t.TempDir()
	net := filepath.Join(dir, "net")
	if err := os.WriteFile(net, export.Ibsim(f.Fleet()).Data, 0o600); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Dir(filepath.Dir(found[0])), "IBSIM_SOCKNAME="+filepath.Base(dir)+fmt.Sprint(os.Getpid()))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	nodes := len(f.Switches) + 8
	for _, h := range f.Hosts {
		nodes += len(h.Ports)
	}
	server := exec.CommandContext(ctx, sim, "-s", "-N", fmt.Sprint(nodes), "-S", fmt.Sprint(len(f.Switches)+8), "-P", fmt.Sprint(260*len(f.Switches)+4*nodes), net)
	server.Env = env
	in, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	server.Stderr = server.Stdout
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ready, done := make(chan string, 1), make(chan struct{})
	go watch(out, ready, done)
	defer func() {
		_ = server.Process.Kill() // at the end of its input it only spins
		<-done
		_ = server.Wait()
		_ = in.Close()
	}()
	if problem := <-ready; problem != "" {
		t.Fatal("ibsim: ", problem)
	}
	for _, guid := range f.Networks() {
		client := exec.CommandContext(ctx, discover, args...)
		client.Env = append(slices.Clone(env), "LD_PRELOAD="+found[0], fmt.Sprintf("SIM_HOST=H-%016x", guid))
		var problems bytes.Buffer
		client.Stderr = &problems
		text, err := client.Output()
		if err != nil {
			t.Fatalf("ibnetdiscover: %v\n%s", err, problems.String())
		}
		texts = append(texts, text)
	}
	return texts
}

// watch reads what the simulator says until it ends: ready gets "" once it serves, else why it does not.
func watch(out io.Reader, ready chan<- string, done chan<- struct{}) {
	defer close(done)
	var said []byte
	buf := make([]byte, 4096)
	told := false
	for {
		n, err := out.Read(buf)
		if !told {
			said = append(said, buf[:n]...)
			if told = bytes.Contains(said, []byte("Network simulator ready")); told {
				ready <- ""
			}
		}
		if err != nil {
			if !told {
				ready <- errors.Join(errors.New(string(said)), err).Error()
			}
			return
		}
	}
}

// edges are the cables that subnets have, as fabriclab writes them.
func edges(t *testing.T, texts [][]byte) []string {
	t.Helper()
	var out []string
	for _, text := range texts {
		s, err := sources.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Problems) > 0 {
			t.Errorf("problems: %s", strings.Join(s.Problems, "; "))
		}
		for _, l := range s.Links {
			out = append(out, fabriclab.Edge(uint64(s.Nodes[l.A.Node].GUID), l.A.Port, uint64(s.Nodes[l.B.Node].GUID), l.B.Port))
		}
	}
	slices.Sort(out)
	return out
}

// Every fabric comes back from the real tool in the simulator, cable by cable, also with cables
// that are swapped or missing.
func TestIbsim(t *testing.T) {
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			f := fabriclab.New(shape)
			got := edges(t, simulate(t, f))
			if want := f.Edges(); !slices.Equal(got, want) {
				t.Errorf("%d cables, want %d\n%.2000s\nwant\n%.2000s", len(got), len(want), strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
	t.Run("swapped and cut", func(t *testing.T) {
		f := fabriclab.New(shapes["rails"])
		whole := f.Edges()
		f.Swap("n3/mlx5_0", "n3/mlx5_5")
		f.CutUplinks(f.Switches[1].Name, 2)
		got, want := edges(t, simulate(t, f)), f.Edges()
		if !slices.Equal(got, want) || slices.Equal(want, whole) || len(want) != len(whole)-2 {
			t.Errorf("%d cables, want %d of %d", len(got), len(want), len(whole))
		}
	})
}

// fixture is the document of dgx-h100.
func fixture(t *testing.T) []byte {
	t.Helper()
	data, err := fixturetest.Topology(t, "dgx-h100").Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// judged is a fleet whose fabric the real tool has discovered. The simulator has no rates, so each link
// gets those of the real ones, 4x NDR.
func judged(t *testing.T, f *fabriclab.Fabric) *fleet.Fleet {
	t.Helper()
	var all []*fleet.Network
	for i, text := range simulate(t, f) {
		s, err := sources.Parse(bytes.ReplaceAll(text, []byte(" 4xSDR"), []byte(" 4xNDR")))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, sources.FromSubnet(s, fmt.Sprint("subnet ", i)))
	}
	n, conflicts := sources.Merge(all...)
	if len(conflicts) > 0 {
		t.Errorf("conflicts: %q", conflicts)
	}
	data := fixture(t)
	var hosts []fleet.Host
	for i := range f.Hosts {
		document, err := f.Document(data, i)
		if err != nil {
			t.Fatal(err)
		}
		top, err := topo.Decode(document)
		if err != nil {
			t.Fatal(err)
		}
		h, err := fleet.Summarize(f.Hosts[i].Name, top)
		if err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, *h)
	}
	out, err := fleet.Build(hosts, n)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// findings are those about the network, as text.
func findings(f *fleet.Fleet) []string {
	var out []string
	for _, x := range f.Findings {
		switch x.Code {
		case fleet.CodeRailMiswired, fleet.CodeLeafThin, fleet.CodeLeafUplinkDown, fleet.CodeHostNotInFabric, fleet.CodePortNotInFabric:
			out = append(out, string(x.Code)+" "+strings.Join(x.Subjects, " "))
		}
	}
	slices.Sort(out)
	return out
}

// Discovered by the real tool, a sound fabric has no finding; of two swapped cables exactly these two are named; a
// leaf whose uplinks are gone is thin. What is found is the generator's, joined by GUID.
func TestFindings(t *testing.T) {
	shape := fabriclab.Shape{Hosts: 8, Rails: 8, Storage: 2, HostsPerGroup: 4, Spines: 2, Uplinks: 2}
	for _, c := range []struct {
		name   string
		change func(f *fabriclab.Fabric)
		want   []string
	}{
		{"sound", func(*fabriclab.Fabric) {}, nil},
		{"swapped on a host", func(f *fabriclab.Fabric) { f.Swap("n3/mlx5_0", "n3/mlx5_5") }, []string{"rail-miswired n3/mlx5_0 n3/mlx5_5"}},
		{"swapped between hosts", func(f *fabriclab.Fabric) { f.Swap("n2/mlx5_4", "n4/mlx5_11") }, []string{"rail-miswired n2/mlx5_4 n4/mlx5_11"}},
		{"swapped between groups", func(f *fabriclab.Fabric) { f.Swap("n2/mlx5_4", "n7/mlx5_4") }, []string{"rail-miswired n2/mlx5_4 n7/mlx5_4"}},
		{"uplinks gone", func(f *fabriclab.Fabric) { f.CutUplinks("p0-leaf-g0-rail2", 2) }, []string{"leaf-thin p0-leaf-g0-rail2", "leaf-uplink-down p0-leaf-g0-rail2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			lab := fabriclab.New(shape)
			c.change(lab)
			f := judged(t, lab)
			if got := findings(f); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if u := f.Unjoined(); len(u) > 0 {
				t.Errorf("not joined: %+v", u)
			}
			cables(t, lab, f)
		})
	}
}

// Three tiers are found again, each switch in its own.
func TestThreeTiers(t *testing.T) {
	lab := fabriclab.New(threeTiers)
	f := judged(t, lab)
	want := map[string]int{}
	for _, s := range lab.Switches {
		want[s.Name] = s.Tier
	}
	if len(f.Switches) != len(want) {
		t.Errorf("%d switches, want %d", len(f.Switches), len(want))
	}
	for _, s := range f.Switches {
		if tier, ok := want[s.Name]; !ok || s.Tier == nil || *s.Tier != tier {
			t.Errorf("%s: tier %v, want %d", s.Name, s.Tier, tier)
		}
	}
}

// cables compares where ports were found to be with where the generator put them.
func cables(t *testing.T, lab *fabriclab.Fabric, f *fleet.Fleet) {
	t.Helper()
	want := lab.Fleet()
	for i := range want.Hosts {
		found := map[string]fleet.Port{}
		for _, p := range f.Hosts[i].Ports {
			if p.Known != "" {
				found[p.Port] = p
			}
		}
		for _, p := range want.Hosts[i].Ports {
			if got := found[p.Port]; got.Leaf != p.Leaf || got.LeafPort != p.LeafPort || got.Known != sources.KnownByIBNet {
				t.Errorf("%s/%s is on %s[%s], want %s[%s]", f.Hosts[i].Host, p.Port, got.Leaf, got.LeafPort, p.Leaf, p.LeafPort)
			}
			delete(found, p.Port)
		}
		for name := range found {
			t.Errorf("%s/%s has a cable", f.Hosts[i].Host, name)
		}
	}
}

// The list of -p has the same cables of hosts as the text.
func TestListOfPorts(t *testing.T) {
	f := fabriclab.New(fabriclab.Shape{Hosts: 4, Rails: 8, HostsPerGroup: 4, Spines: 2})
	s, err := sources.Parse(simulate(t, f, "-p")[0])
	if err != nil {
		t.Fatal(err)
	}
	if want := len(f.Edges()); len(s.Links) != want || len(s.Problems) > 0 {
		t.Errorf("%d cables, want %d; %q", len(s.Links), want, s.Problems)
	}
}
