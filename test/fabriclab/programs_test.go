package fabriclab_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/fleet/export"

	"github.com/topoctl/topoctl/internal/fleet/sources"
	"github.com/topoctl/topoctl/test/fabriclab"
)

// inNamespace runs a script of testdata with namespaces of its own, or the test is skipped with the reason.
func inNamespace(t *testing.T, script string, args ...string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("COULD NOT CHECK: namespaces need root here")
	}
	if text, err := exec.Command("unshare", "-n", "-m", "true").CombinedOutput(); err != nil {
		t.Skipf("COULD NOT CHECK: unshare -n -m: %v: %s", err, text)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"-n", "-m", "bash", filepath.Join("testdata", script), os.Getenv(tools)}, args...)...)
	var problems strings.Builder
	cmd.Stderr = &problems
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", script, err, out, problems.String())
	}
	return string(out)
}

// lldpd on veth pairs gives the cables of hosts and the link between switches.
func TestLLDP(t *testing.T) {
	tool(t, "usr/sbin/lldpd")
	dir := t.TempDir()
	inNamespace(t, "lldp.sh", dir)
	var heard []sources.Heard
	for _, name := range []string{"n1", "n2", "leaf1", "spine1"} {
		data, err := os.ReadFile(filepath.Join(dir, name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := sources.ParseLLDP(data)
		if err != nil {
			t.Fatal(name, err)
		}
		heard = append(heard, sources.Heard{Host: name, Report: r})
	}
	f := &fleet.Fleet{Hosts: []fleet.Host{
		{Host: "n1", Status: fleet.OK, Ports: []fleet.Port{{Port: "eth0", Netdev: "eth0", Role: "data"}, {Port: "eth1", Netdev: "eth1", Role: "data"}}},
		{Host: "n2", Status: fleet.OK, Ports: []fleet.Port{{Port: "eth0", Netdev: "eth0", Role: "data"}}},
	}}
	n, left := sources.FromLLDP(heard, f, "lldp")
	if len(left) > 0 {
		t.Errorf("not used: %q", left)
	}
	built, err := f.Rebuild(n)
	if err != nil {
		t.Fatal(err)
	}
	file, _ := sources.File(built, built.Unjoined())
	var got []string
	for _, h := range file.Hosts {
		for _, p := range h.Ports {
			got = append(got, fmt.Sprintf("%s/%s %s[%s] by %s", h.Host, p.Port, p.Leaf, p.LeafPort, p.Known))
		}
	}
	for _, u := range file.Uplinks {
		got = append(got, fmt.Sprintf("%s %s %v by %s", u.Leaf, u.Spine, u.Ports, u.Known))
	}
	want := []string{"n1/eth0 leaf1[swp1] by lldp", "n1/eth1 leaf1[swp2] by lldp", "n2/eth0 leaf1[swp3] by lldp", "leaf1 spine1 [[swp49 swp1]] by lldp"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// digest is what tells a place's name from others.
var digest = regexp.MustCompile(`-[0-9a-f]{8}\b`)

// Slurm's controller reads trees of two and of three tiers, and has each host where the fabric has it.
func TestSlurm(t *testing.T) {
	tool(t, "usr/sbin/slurmctld-wlm")
	for _, c := range []struct {
		name, hosts string
		shape       fabriclab.Shape
		want        []string
	}{
		{"two tiers", "n[1-24]", fabriclab.Shape{Hosts: 24, Rails: 4, HostsPerGroup: 8, Spines: 2}, []string{
			"SwitchName=su Level=0 LinkSpeed=1 Nodes=n[1-8]", "SwitchName=su Level=0 LinkSpeed=1 Nodes=n[9-16]", "SwitchName=su Level=0 LinkSpeed=1 Nodes=n[17-24]",
			"SwitchName=tier1 Level=1 LinkSpeed=1 Nodes=n[1-24]",
		}},
		{"three tiers", "n[1-16]", threeTiers, []string{
			"SwitchName=su Level=0 LinkSpeed=1 Nodes=n[1-4]", "SwitchName=su Level=0 LinkSpeed=1 Nodes=n[5-8]",
			"SwitchName=su Level=0 LinkSpeed=1 Nodes=n[9-12]", "SwitchName=su Level=0 LinkSpeed=1 Nodes=n[13-16]",
			"SwitchName=tier1 Level=1 LinkSpeed=1 Nodes=n[1-8]", "SwitchName=tier1 Level=1 LinkSpeed=1 Nodes=n[9-16]",
			"SwitchName=tier2 Level=2 LinkSpeed=1 Nodes=n[1-16]",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			f := fabriclab.New(c.shape).Fleet()
			known, err := fleet.Build(f.Hosts, network(f))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "topology.conf"), export.SlurmTree(known).Data, 0o600); err != nil {
				t.Fatal(err)
			}
			var got []string
			for line := range strings.Lines(inNamespace(t, "slurm.sh", dir, c.hosts)) {
				line, _, _ = strings.Cut(strings.TrimSpace(line), " Switches=") // in an order of Slurm's own
				if line = digest.ReplaceAllString(line, ""); line != "" {
					got = append(got, line)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// network is a fleet's own network, as a source would give it.
func network(f *fleet.Fleet) *fleet.Network {
	n := &fleet.Network{Source: "fabriclab", Switches: f.Switches, Links: f.Links}
	for i := range f.Hosts {
		for _, p := range f.Hosts[i].Ports {
			n.Cables = append(n.Cables, fleet.Cable{GUID: p.GUID, NodeGUID: p.NodeGUID, Leaf: p.Leaf, LeafPort: p.LeafPort, Known: "fabriclab"})
		}
	}
	return n
}

// topoctl runs itself on hosts through the real ssh and sshd: one that has it gives its topology, each of the others is a
// row with what ssh says, none asks for a key or a password, and one that hangs holds nothing up.
func TestSSHD(t *testing.T) {
	tool(t, "usr/sbin/sshd")
	dir := t.TempDir()
	program := filepath.Join(dir, "built")
	if text, err := exec.Command("go", "build", "-o", program, "../../cmd/topoctl").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	codes := inNamespace(t, "sshd.sh", dir, program)
	read := func(file string) []byte {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	answer := string(read("answer"))
	if codes != "code 3\ncode 0\n" && codes != "code 3\ncode 3\n" { // this machine may not tell all of itself
		t.Errorf("exit codes\n%s\n%s%s", codes, answer, read("said"))
	}
	f, err := fleet.Decode(read("fleet/fleet.json"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"bare":           "topoctl: command not found|topoctl: not found", // what bash says, and dash
		"changed":        "Host key verification failed.",
		"denied":         "Permission denied (publickey,password",
		"down":           "Connection refused",
		"hung":           "timed out",
		"nosuch.invalid": "Could not resolve hostname",
		"unknown":        "Host key verification failed.",
	}
	for i := range f.Hosts {
		h := &f.Hosts[i]
		reason, bad := want[h.Host]
		delete(want, h.Host)
		switch {
		case h.Host == "good" && (!h.Known() || h.Fingerprint == ""), h.Host != "good" && !bad:
			t.Errorf("%s: %s %q", h.Host, h.Status, h.Reason)
		case bad && (h.Known() || !slices.ContainsFunc(strings.Split(reason, "|"), func(r string) bool { return strings.Contains(h.Reason, r) })):
			t.Errorf("%s: %s %q, want %q", h.Host, h.Status, h.Reason, reason)
		}
	}
	if len(want) > 0 {
		t.Errorf("not listed: %v", want)
	}
	if words, err := fleet.Decode(read("words/fleet.json")); err != nil || len(words.Hosts) != 1 || words.Hosts[0].Host != "n1" || !words.Hosts[0].Known() {
		t.Errorf("with --launch-command: %+v, %v", words, err)
	}
	for _, bad := range []string{"password:", "yes/no", "passphrase"} {
		if said := string(read("said")); strings.Contains(said, bad) {
			t.Errorf("it asks: %s", said)
		}
	}
	t.Logf("%s", answer)
}
