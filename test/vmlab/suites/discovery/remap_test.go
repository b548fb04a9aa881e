//go:build vmlab && linux

package discovery

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/test/vmlab"
	"github.com/topoctl/topoctl/test/vmlab/guest"
)

// file writes what a command is to read.
func file(t *testing.T, name string, data []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// macs are those that QEMU's command line gives this machine's NICs.
func macs(l *guest.Lab) func(rail int) string {
	return func(rail int) string { return vmlab.MAC(l.Host(), rail) }
}

func noMACs(int) string { return "" }

// maps names the partners of those devices.
func (h *hypervisor) maps(of func(*vmlab.Function) bool) []string {
	var out []string
	for _, p := range h.passed {
		if of(p.guest) {
			out = append(out, "--map", p.guest.BDF+"="+p.host.BDF)
		}
	}
	return out
}

func isGPU(f *vmlab.Function) bool { return f.GPU != nil }
func every(*vmlab.Function) bool   { return true }

// byMAC: NICs have addresses; stand-ins of GPUs have nothing to be known by, so they are mapped.
func byMAC(f *vmlab.Function) string {
	if isGPU(f) {
		return "--map"
	}
	return "MAC address"
}

func always(way string) func(*vmlab.Function) string {
	return func(*vmlab.Function) string { return way }
}

// rows are the pairs as remap's table has them. by says how a device is known, "" where it is not.
func (h *hypervisor) rows(by func(*vmlab.Function) string) []string {
	here, there := names(h.guest), names(h.Machine)
	var out []string
	for _, p := range h.passed {
		way := by(p.guest)
		if way == "" {
			continue
		}
		name, partner := here[p.guest.BDF], there[p.host.BDF]
		if p.guest.NIC != nil {
			partner = hostName(p.guest.NIC.Rail)
		}
		out = append(out, fmt.Sprintf("%s %s %s %s %s switch %s", p.guest.BDF, name, p.host.BDF, partner, way, h.switchAbove(p.host)))
	}
	return out
}

// names are what the system of a lab machine calls its devices, by their addresses.
func names(m *vmlab.Machine) map[string]string {
	out := map[string]string{}
	gpus := 0
	for _, f := range devices(m) { // in the order of addresses
		if f.NIC != nil {
			out[f.BDF] = vmlab.RailNetDev(f.NIC.Rail)
			continue
		}
		out[f.BDF] = fmt.Sprintf("gpu:%d", gpus)
		gpus++
	}
	return out
}

// switchAbove is the address of the upstream port above a device.
func (h *hypervisor) switchAbove(device *vmlab.Function) string {
	for _, f := range h.Functions() {
		if f.Kind == vmlab.Upstream && slices.Contains(device.Above, f.BDF) {
			return f.BDF
		}
	}
	return ""
}

// pairRows are the lines of remap's table that begin with an address.
func pairRows(table string) []string {
	var out []string
	for line := range strings.Lines(table) {
		if words := strings.Fields(line); len(words) > 0 && strings.HasPrefix(words[0], "0000:") {
			out = append(out, strings.Join(words, " "))
		}
	}
	return out
}

// swap gives two rails below different switches each other's place on the host.
func (h *hypervisor) swap(t *testing.T) {
	t.Helper()
	var first *passed
	for i := range h.passed {
		p := &h.passed[i]
		switch {
		case p.guest.NIC == nil:
		case first == nil:
			first = p
		case first.host.Bridge != p.host.Bridge:
			first.host, p.host = p.host, first.host
			return
		}
	}
	t.Fatal("all rails are below one switch")
}

// notes are the lines of standard error.
func notes(errs []byte) []string {
	return strings.FieldsFunc(string(errs), func(r rune) bool { return r == '\n' })
}

const mgmtAddress = "0000:00:1d.0"

// statedNotes: the guest's NUMA nodes are not the host's, and the management NIC, with those beside it,
// is none of the host's.
func (h *hypervisor) statedNotes(unpaired ...string) []string {
	out := []string{fmt.Sprintf("topoctl: note: which CPUs of the guest are near the devices is not known: 2 NUMA nodes of the host are added without CPUs (numa:%d and on)", h.guest.Nodes())}
	unpaired = append([]string{mgmtAddress + " (mgmt)"}, unpaired...)
	stay := "stays where the guest has it"
	if len(unpaired) > 1 {
		stay = "stay where the guest has them"
	}
	return append(out, fmt.Sprintf("topoctl: note: %s %s: no device of the host has the same MAC address", strings.Join(unpaired, ", "), stay))
}

// The machine as it runs is given the switches of a host: by MAC addresses, and by libvirt's
// description. In NCCL's file and in topoctl's document its devices are as near as they are there, and
// the doctor has nothing to say of bridges that the emulator made up.
func TestRemap(t *testing.T) {
	l, ctx := open(t)
	h := hypervisorOf(l.Hardware())

	byMACs := append([]string{"remap", "--host", file(t, "host.json", h.topology(t, macs(l)))}, h.maps(isGPU)...)
	table, errs, code := program(ctx, t, byMACs...)
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	diff(t, "pairs", pairRows(string(table)), h.rows(byMAC))
	diff(t, "notes", notes(errs), h.statedNotes())
	xml := filepath.Join(t.TempDir(), "topo.xml")
	topoctl(ctx, t, append(byMACs, "-o", "nccl-xml", "--out-file", xml)...)
	// Beside RDMA devices a plain interface is no net of NCCL's.
	nets := slices.DeleteFunc(h.matrix(), func(s string) bool { return strings.Contains(s, mgmtAddress) })
	diff(t, "classes of NCCL's file", matrixOf(ctx, t, "--from", xml), nets)

	vm := filepath.Join(t.TempDir(), "vm.json")
	topoctl(ctx, t, "remap", "--host", file(t, "host.json", h.topology(t, noMACs)), "--libvirt", file(t, "vm.xml", h.domain(t)), "-o", "topology", "--out-file", vm)
	diff(t, "classes of topoctl's document", matrixOf(ctx, t, "--from", vm), h.matrix())
	want := slices.DeleteFunc(statedFindings(l.Hardware(), false), func(s string) bool {
		return strings.HasPrefix(s, "implausible-bridge-link ")
	})
	diff(t, "findings", findings(ctx, t, "--from", vm), want)
}

// Where nothing has an identity that both sides know, --map or libvirt's description is enough; where
// several ways know a device, the table names all.
func TestRemapByAddress(t *testing.T) {
	l, ctx := open(t)
	h := hypervisorOf(l.Hardware())
	document, _ := topoctl(ctx, t, "discover")
	live := file(t, "guest.json", document)
	unknown, known := file(t, "host.json", h.topology(t, noMACs)), file(t, "host.json", h.topology(t, macs(l)))
	domain := file(t, "vm.xml", h.domain(t))
	for _, c := range []struct {
		name string
		args []string
		by   func(*vmlab.Function) string
	}{
		{"--map", append([]string{"--host", unknown}, h.maps(every)...), always("--map")},
		{"libvirt", []string{"--libvirt", domain, "--host", unknown}, always("libvirt")},
		{"both", []string{"--libvirt", domain, "--host", known}, func(f *vmlab.Function) string {
			if isGPU(f) {
				return "libvirt"
			}
			return "libvirt, MAC address"
		}},
	} {
		table, errs, code := program(ctx, t, append([]string{"remap", "--guest", live}, c.args...)...)
		if code != 0 {
			t.Errorf("%s: exit code %d", c.name, code)
		}
		diff(t, "pairs by "+c.name, pairRows(string(table)), h.rows(c.by))
		diff(t, "notes beside "+c.name, notes(errs), h.statedNotes())
	}
}

// Another host gives other pairs: one that has two addresses the other way round, one that lacks one.
// What contradicts itself, and GPUs of which nothing is known, are refused.
func TestRemapOtherHosts(t *testing.T) {
	l, ctx := open(t)
	h := hypervisorOf(l.Hardware())
	document, _ := topoctl(ctx, t, "discover")
	live := file(t, "guest.json", document)
	maps := h.maps(isGPU)

	swapped := hypervisorOf(l.Hardware())
	swapped.swap(t)
	other := file(t, "host.json", swapped.topology(t, macs(l)))
	table, _, _ := program(ctx, t, append([]string{"remap", "--guest", live, "--host", other}, maps...)...)
	diff(t, "pairs of two that were swapped", pairRows(string(table)), swapped.rows(byMAC))
	if slices.Equal(swapped.rows(byMAC), h.rows(byMAC)) || slices.Equal(swapped.matrix(), h.matrix()) {
		t.Error("nothing was swapped")
	}
	vm := filepath.Join(t.TempDir(), "vm.json")
	topoctl(ctx, t, append([]string{"remap", "--guest", live, "--host", other, "-o", "topology", "--out-file", vm}, maps...)...)
	diff(t, "classes of two that were swapped", matrixOf(ctx, t, "--from", vm), swapped.matrix())

	_, errs, code := program(ctx, t, "remap", "--guest", live, "--host", other, "--libvirt", file(t, "vm.xml", h.domain(t)))
	if code != 2 || !strings.Contains(string(errs), " by libvirt, and ") || !strings.Contains(string(errs), " by MAC address: ") {
		t.Errorf("libvirt and the addresses contradict each other: exit code %d, %s", code, errs)
	}

	const missing = 2
	foreign := file(t, "host.json", h.topology(t, func(rail int) string {
		if rail == missing {
			return vmlab.MAC(7, rail)
		}
		return vmlab.MAC(l.Host(), rail)
	}))
	table, errs, code = program(ctx, t, append([]string{"remap", "--guest", live, "--host", foreign}, maps...)...)
	if code != 0 {
		t.Errorf("exit code %d without the address of a rail", code)
	}
	var at string
	diff(t, "pairs without one", pairRows(string(table)), h.rows(func(f *vmlab.Function) string {
		if f.NIC != nil && f.NIC.Rail == missing {
			at = f.BDF
			return ""
		}
		return byMAC(f)
	}))
	left := fmt.Sprintf("%s (%s)", at, vmlab.RailNetDev(missing))
	if !slices.ContainsFunc(notes(errs), func(s string) bool { return strings.Contains(s, left+" stay where the guest has them: ") }) {
		t.Errorf("no note that %s stays in\n%s", left, errs)
	}

	if len(maps) == 0 {
		return // no GPU to be refused
	}
	table, errs, code = program(ctx, t, "remap", "--guest", live, "--host", file(t, "host.json", h.topology(t, macs(l))))
	if code != 2 || len(table) > 0 {
		t.Errorf("GPUs that nothing is known of: exit code %d\n%s", code, table)
	}
	for at, name := range names(l.Hardware()) {
		if strings.HasPrefix(name, "gpu:") != strings.Contains(string(errs), fmt.Sprintf("%s (%s)", at, name)) {
			t.Errorf("%s %s is wrong in\n%s", at, name, errs)
		}
	}
}
