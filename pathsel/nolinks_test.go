package pathsel_test

import (
	"testing"

	"github.com/topoctl/topoctl/discover/formats/texts"
	"github.com/topoctl/topoctl/pathsel"
)

// The text of nvidia-smi has classes and no link at all: lanes from there are of
// unknown rate, and the other host's links are still its own.
func TestLanesOfAHostWithoutLinks(t *testing.T) {
	bare, err := texts.Decode([]byte("\tGPU0\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPIX\t0-7\t0\nNIC0\tPIX\t X \n\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_0\n"))
	if err != nil {
		t.Fatal(err)
	}
	here, there := prepare(t, bare, pathsel.Options{}), fixture(t, "dgx-h100")
	for _, hosts := range [][2]*pathsel.Host{{here, there}, {there, here}} {
		pair, err := pathsel.Connect(hosts[0], hosts[1], pathsel.PairOptions{LocalName: "a", RemoteName: "b"})
		if err != nil {
			t.Fatal(err)
		}
		set, err := pair.Lanes("gpu:0", "gpu:0")
		if err != nil {
			t.Fatal(err)
		}
		want := pathsel.SideRemote
		if hosts[0] == there {
			want = pathsel.SideLocal
		}
		if l := &set.Lanes[0]; l.LimitHost != want || l.Limit == "" {
			t.Errorf("limit %s of the %s host, want the %s one", l.Limit, l.LimitHost, want)
		}
	}
}
