package fixturetest_test

import (
	"bytes"
	"testing"

	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// What a test does to its copy, no other test sees.
func TestCopies(t *testing.T) {
	before, err := fixturetest.Topology(t, "dgx-h100").Encode()
	if err != nil {
		t.Fatal(err)
	}
	mine := fixturetest.Topology(t, "dgx-h100")
	mine.Host.Name, mine.GPUs[0].ID, *mine.NUMANodes[0].MemoryBytes = "mine", "mine", 1
	mine.Derive()
	after, err := fixturetest.Topology(t, "dgx-h100").Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Error("the second copy has what was changed in the first")
	}
}
