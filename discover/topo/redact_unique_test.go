package topo_test

import (
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
)

// TestRedactUniqueID: an AMD GPU's UUID and the number that its driver's files
// hold get the same placeholder, in hexadecimal and decimal.
func TestRedactUniqueID(t *testing.T) {
	host := &topo.Topology{GPUs: []topo.GPU{{UUID: "GPU-5b1b2c3d4e5f60c2"}, {UUID: "GPU-48aa000000000001"}, {UUID: "GPU-0000000000000007"}}}
	r := topo.NewRedactor(host)
	if c := r.Topology(host); c.GPUs[0].UUID != "GPU-0000000000000001" || c.GPUs[1].UUID != "GPU-0000000000000002" || c.GPUs[2].UUID != host.GPUs[2].UUID {
		t.Errorf("UUIDs %s, %s, %s", c.GPUs[0].UUID, c.GPUs[1].UUID, c.GPUs[2].UUID)
	}
	text := "vendor_id 4098\nunique_id 6564889523642130626\nhive_id 11400714819323198485\nlocation_id 3072\n"
	want := "vendor_id 4098\nunique_id 1\nhive_id 3\nlocation_id 3072\n"
	if got := string(r.Text([]byte(text))); got != want {
		t.Errorf("properties:\n%swant\n%s", got, want)
	}
	if got := string(r.Text([]byte("5b1b2c3d4e5f60c2\n"))); got != "0000000000000001\n" {
		t.Errorf("the PCI function's unique_id: %s", got)
	}
	if again := string(r.Text([]byte(want))); !strings.Contains(again, "unique_id 1\n") {
		t.Errorf("redacted again: %s", again)
	}
}
