package lane

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/probe"
)

// sysfs writes files below a folder.
func sysfs(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// States are those at the end; of the counters only those that moved are told, and that
// were reset count from 0.
func TestLinks(t *testing.T) {
	const (
		ib  = "class/infiniband/mlx5_0/ports/1/"
		net = "class/net/eth0/"
		pci = "bus/pci/devices/0000:18:00.0/"
	)
	dir := t.TempDir()
	sysfs(t, dir, map[string]string{
		ib + "state": "4: ACTIVE", ib + "counters/symbol_error": "5", ib + "counters/port_rcv_data": "100", ib + "counters/port_xmit_discards": "3",
		ib + "hw_counters/out_of_sequence": "7", ib + "hw_counters/lifespan": "12", ib + "hw_counters/rx_write_requests": "1", ib + "hw_counters/np_cnp_sent": "9",
		net + "operstate": "up", net + "statistics/rx_errors": "1", net + "statistics/rx_bytes": "1", net + "statistics/tx_dropped": "garbage",
		pci + "current_link_speed": "32.0 GT/s PCIe", pci + "current_link_width": "16", pci + "aer_dev_correctable": "RxErr 4\nBadTLP 0\nTOTAL_ERR_COR 4",
	})
	top := &topo.Topology{
		Ports: []topo.Port{{Node: topo.Node{ID: "port:mlx5_0/1"}, RDMA: "rdma:mlx5_0", Number: 1}},
		Links: []topo.Link{
			{ID: "port:mlx5_0/1", Kind: topo.LinkPort, B: "port:mlx5_0/1"}, {ID: "port:eth0", Kind: topo.LinkPort, B: "net:eth0"},
			{ID: "pcie:0000:18:00.0", Kind: topo.LinkPCIe, B: "pci:0000:18:00.0"}, {ID: "rc:0000:17", Kind: topo.LinkRootComplex}, {ID: "port:eth9", Kind: topo.LinkPort, B: "net:eth9"},
		},
	}
	key := func(l topo.LinkID, direction string) probe.LinkKey { return probe.Key("h", l, direction) }
	path := []probe.LinkKey{key("rc:0000:17", "up"), key("pcie:0000:18:00.0", "down"), key("port:mlx5_0/1", "down"), key("port:mlx5_0/1", "up"), key("port:eth0", "up"), key("port:eth9", "up"),
		probe.Key("other", "port:mlx5_0/1", "down")}
	look := NewLinks(top, "h", dir).Look(path)
	sysfs(t, dir, map[string]string{
		ib + "counters/symbol_error": "8", ib + "counters/port_rcv_data": "900", ib + "hw_counters/out_of_sequence": "2", ib + "hw_counters/rx_write_requests": "5",
		ib + "hw_counters/lifespan": "13", net + "operstate": "down", net + "statistics/rx_bytes": "9",
		pci + "current_link_width": "8", pci + "aer_dev_correctable": "RxErr 4\nBadTLP 2\nTOTAL_ERR_COR 6",
	})
	want := []probe.LinkState{
		{Link: key("pcie:0000:18:00.0", "down"), State: "gen5 x8", Counters: map[string]int64{"aer_dev_correctable/BadTLP": 2}},
		{Link: key("port:mlx5_0/1", "down"), State: "ACTIVE", Counters: map[string]int64{"symbol_error": 3, "out_of_sequence": 2}},
		{Link: key("port:eth0", "up"), State: "down"},
	}
	if got := look.Since(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := NewLinks(top, "h", filepath.Join(dir, "nowhere")).Look(path).Since(); len(got) != 0 || got == nil {
		t.Errorf("without /sys: %+v", got)
	}
}

func TestPCIeState(t *testing.T) {
	for in, want := range map[[2]string]string{
		{"32.0 GT/s PCIe", "16"}: "gen5 x16", {"2.5 GT/s PCIe", "1"}: "gen1 x1", {"128.0 GT/s", "4"}: "128.0 GT/s x4",
		{"Unknown", "16"}: "", {"16.0 GT/s PCIe", "0"}: "", {"16.0 GT/s PCIe", "255"}: "", {"", ""}: "", {"8.0 GT/s PCIe", "x"}: "",
	} {
		if got := pcieState(in[0], in[1]); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	counters := map[string]int64{}
	addAER(counters, "f", "RxErr 1\nno number\nthree words 1\nBad x\nTOTAL_ERR 9\n")
	if !maps.Equal(counters, map[string]int64{"f/RxErr": 1}) {
		t.Errorf("%v", counters)
	}
}
