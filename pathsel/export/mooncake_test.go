package export_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/export"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
)

// matrixEntry is one key of a priority matrix and its lists, as they stand in
// the text.
type matrixEntry struct {
	key   string
	lists [][]string
}

// readMatrix reads a priority matrix strictly and keeps the order of its keys.
func readMatrix(t testing.TB, data []byte) []matrixEntry {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(data))
	open, err := dec.Token()
	if err != nil || open != json.Delim('{') {
		t.Fatalf("no object: %v, %v", open, err)
	}
	var out []matrixEntry
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			t.Fatal(err)
		}
		e := matrixEntry{key: key.(string)}
		if err := dec.Decode(&e.lists); err != nil {
			t.Fatal(err)
		}
		if len(e.lists) != 2 || e.lists[0] == nil || e.lists[1] == nil {
			t.Fatalf("%s: %v: want exactly two arrays", e.key, e.lists)
		}
		out = append(out, e)
	}
	if _, err := dec.Token(); err != nil {
		t.Fatal(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		t.Fatalf("more after the object: %v", err)
	}
	return out
}

func TestMooncakeOfFixtures(t *testing.T) {
	for _, name := range fixtures.Names() {
		t.Run(name, func(t *testing.T) {
			top := fixturetest.Topology(t, name)
			h := prepare(t, top)
			if h.Transport() != pathsel.RDMA {
				_, err := export.Mooncake(io.Discard, h, export.AllGPUs(top))
				if err == nil || !strings.Contains(err.Error(), "no usable RDMA device") {
					t.Errorf("a host without RDMA: %v", err)
				}
				return
			}
			data, _ := mooncake(t, h, export.AllGPUs(top))
			if !strings.Contains(name, "synthetic") {
				golden.Check(t, "testdata/mooncake/"+name+".json", data)
			}
			checkMatrix(t, h, readMatrix(t, data))
		})
	}
}

// checkMatrix holds a matrix against the host: every location, each device
// once, no device that is rejected.
func checkMatrix(t *testing.T, h *pathsel.Host, entries []matrixEntry) {
	t.Helper()
	usable := map[string]bool{}
	for _, p := range h.Ports() {
		usable[p.Device] = usable[p.Device] || p.Usable && p.RDMA()
	}
	var keys []string
	for _, e := range entries {
		keys = append(keys, e.key)
		seen := map[string]bool{}
		for _, device := range slices.Concat(e.lists...) {
			if !usable[device] {
				t.Errorf("%s: %s is not usable", e.key, device)
			}
			if seen[device] {
				t.Errorf("%s: %s stands twice", e.key, device)
			}
			seen[device] = true
		}
		if len(seen) == 0 {
			t.Errorf("%s has no device", e.key)
		}
	}
	if !slices.IsSorted(keys) {
		t.Errorf("keys are not in byte order: %q", keys)
	}
	if want := len(h.Locations()); len(keys) != want {
		t.Errorf("%d locations, want %d", len(keys), want)
	}
}

// devicesOf are the lists of one key as one text.
func devicesOf(t *testing.T, entries []matrixEntry, key string) string {
	t.Helper()
	for _, e := range entries {
		if e.key == key {
			return strings.Join(e.lists[0], " ") + " | " + strings.Join(e.lists[1], " ")
		}
	}
	t.Fatalf("no key %q", key)
	return ""
}

// What other tools are known to get wrong.
func TestMooncakeKnownFailures(t *testing.T) {
	for _, c := range []struct{ about, fixture, key, want string }{
		{"GB200 has a PCI domain for each device: two NICs of the socket, no BlueField", "gb200-tray", "cuda:2", "mlx5_2 mlx5_3 | mlx5_0 mlx5_1"},
		{"B200's NVLink managers are no NICs", "b200", "cuda:1", "mlx5_3 | mlx5_0 mlx5_4 mlx5_5 mlx5_6 mlx5_7 mlx5_8 mlx5_9"},
		{"a GPU's index is not its NIC's", "hgx-h20-8nic", "cuda:0", "mlx5_1 | mlx5_2 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_7 mlx5_8"},
		{"virtual functions are no bandwidth", "sriov-pf-vf", "cuda:1", "mlx5_1 | mlx5_0"},
		{"bonds have their RDMA names", "bonds", "cuda:3", "mlx5_bond_2 mlx5_bond_3 | mlx5_bond_0 mlx5_bond_1 mlx5_bond_4 mlx5_bond_5 mlx5_bond_6 mlx5_bond_7"},
		{"RoCE beside InfiniBand is another network", "h20-4ib-1roce", "cpu:0", "ibp14s0 ibp71s0 | ibp134s0 ibp195s0"},
		{"AMD's build says hip", "mi300x-8nic", "hip:5", "mlx5_5 | mlx5_4 mlx5_6 mlx5_7 mlx5_0 mlx5_1 mlx5_2 mlx5_3"},
	} {
		top := fixturetest.Topology(t, c.fixture)
		data, _ := mooncake(t, prepare(t, top), export.AllGPUs(top))
		if got := devicesOf(t, readMatrix(t, data), c.key); got != c.want {
			t.Errorf("%s: %s %s: %s, want %s", c.about, c.fixture, c.key, got, c.want)
		}
	}
	top := fixturetest.Topology(t, "dgx-h100-port-down")
	data, _ := mooncake(t, prepare(t, top), export.AllGPUs(top))
	if bytes.Contains(data, []byte(`"mlx5_6"`)) {
		t.Errorf("the NIC whose port is down is in the matrix:\n%s", data)
	}
}

// The numbers are those that the process sees.
func TestMooncakeVisible(t *testing.T) {
	top := fixturetest.Topology(t, "hgx-h20-8nic")
	v, err := export.AllGPUs(top).Select("6,3")
	if err != nil {
		t.Fatal(err)
	}
	data, _ := mooncake(t, prepare(t, top), v)
	entries := readMatrix(t, data)
	if len(entries) != 4 || !strings.HasPrefix(devicesOf(t, entries, "cuda:0"), "mlx5_7 |") ||
		!strings.HasPrefix(devicesOf(t, entries, "cuda:1"), "mlx5_4 |") {
		t.Errorf("visible 6,3:\n%s", data)
	}
}

// Peers number the NICs as their host does, on hosts with ten GPUs and more
// too, where Mooncake's own discovery goes wrong.
func TestMooncakePeersAgree(t *testing.T) {
	for _, gpus := range []int{2, 8, 10, 12, 16} {
		h := prepare(t, fixturetest.Spec(t, wide(gpus)))
		data, _ := mooncake(t, h, export.AllGPUs(h.Topology()))
		checkMatrix(t, h, readMatrix(t, data))
		if wrong := misrouted(t, data, nil); wrong != 0 {
			t.Errorf("%d GPUs: a peer sends %.0f %% of its picks to a wrong NIC", gpus, 100*wrong)
		}
		// The same in the order of discovery is wrong, so the test can fail.
		discovered := misrouted(t, data, func(a, b matrixEntry) int { return naturally(a.key, b.key) })
		if (gpus >= 12) != (discovered > 0) {
			t.Errorf("%d GPUs in the order of discovery: %.0f %% of the picks are wrong", gpus, 100*discovered)
		}
	}
	for _, name := range fixtures.Names() {
		top := fixturetest.Topology(t, name)
		if h := prepare(t, top); h.Transport() == pathsel.RDMA {
			data, _ := mooncake(t, h, export.AllGPUs(top))
			if wrong := misrouted(t, data, nil); wrong != 0 {
				t.Errorf("%s: a peer sends %.0f %% of its picks to a wrong NIC", name, 100*wrong)
			}
		}
	}
}

// misrouted is the worst of a peer's misrouted picks, where the host fills its table in the order of
// the document, or of by.
func misrouted(t *testing.T, data []byte, by func(a, b matrixEntry) int) float64 {
	t.Helper()
	if len(data) > 1<<20 {
		t.Fatalf("Mooncake would refuse a matrix of %d bytes", len(data))
	}
	list := readMatrix(t, data)
	if by != nil {
		slices.SortFunc(list, by)
	}
	return number(list).misrouted()
}

// naturally orders "cuda:2" before "cuda:10".
func naturally(a, b string) int {
	if len(a) != len(b) && a[:3] == b[:3] {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// Mooncake uses port 1 of every device.
func TestMooncakePorts(t *testing.T) {
	top := fixturetest.Topology(t, "dgx-h100")
	for i := range top.Ports {
		switch p := &top.Ports[i]; p.RDMA {
		case "rdma:mlx5_0", "rdma:mlx5_3":
			p.Number, p.ID = 2, p.RDMA+"/2"
		}
	}
	h := prepare(t, top)
	data, notes := mooncake(t, h, export.AllGPUs(top))
	if bytes.Contains(data, []byte(`"mlx5_0"`)) || !bytes.Contains(data, []byte(`"mlx5_4"`)) {
		t.Errorf("devices without port 1:\n%s", data)
	}
	if got := fmt.Sprint(notes); !strings.Contains(got, "mlx5_0 is left out: Mooncake uses port 1") {
		t.Errorf("notes: %s", got)
	}
	for i := range top.Ports {
		p := &top.Ports[i]
		p.Number, p.ID = 2, p.RDMA+"/2"
	}
	data, notes = mooncake(t, prepare(t, top), export.AllGPUs(top))
	if !bytes.Contains(data, []byte(`"mlx5_0"`)) || !strings.Contains(fmt.Sprint(notes), "MC_IB_PORT must be 2") {
		t.Errorf("notes %q:\n%s", notes, data)
	}
}

func TestMooncakeNotes(t *testing.T) {
	top := fixturetest.Topology(t, "dgx-h100")
	for i := range top.GPUs {
		top.GPUs[i].Vendor = "0x1234"
	}
	data, notes := mooncake(t, prepare(t, top), export.AllGPUs(top))
	if len(readMatrix(t, data)) != 2 || !strings.Contains(fmt.Sprint(notes), `gpu:7 is left out: which name Mooncake has for GPUs of "0x1234" is not known`) {
		t.Errorf("GPUs of another vendor: %q\n%s", notes, data)
	}
	top = fixturetest.Topology(t, "lab-softrdma")
	for i := range top.RDMADevices { // as if they were cards
		top.RDMADevices[i].Software = false
	}
	data, notes = mooncake(t, prepare(t, top), export.AllGPUs(top))
	if bytes.Contains(data, []byte("siw0")) || !strings.Contains(fmt.Sprint(notes), "siw0 is left out: iWARP") {
		t.Errorf("iWARP: %q\n%s", notes, data)
	}
}
