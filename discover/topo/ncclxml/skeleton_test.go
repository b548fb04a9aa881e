package ncclxml

import (
	"bytes"
	"regexp"
	"slices"
	"testing"

	"github.com/topoctl/topoctl/internal/base/fixturetest"
)

// A skeleton has the PCI elements of the whole file, with all their attributes,
// and nothing on them.
func TestSkeletonKeepsPCI(t *testing.T) {
	pci := regexp.MustCompile(`<pci [^>]*?/?>`)
	others := regexp.MustCompile(`<(gpu|nic|net|nvlink|c2c|xgmi)\b`)
	for _, name := range []string{"dgx-h100", "gb200-tray", "lab-softrdma", "mi300x-8nic", "vm-flat"} {
		top := fixturetest.Topology(t, name)
		var whole, bare bytes.Buffer
		if err := Encode(&whole, top); err != nil {
			t.Fatal(err)
		}
		if err := EncodeSkeleton(&bare, top); err != nil {
			t.Fatal(err)
		}
		elements := func(b *bytes.Buffer) []string {
			var out []string
			for _, e := range pci.FindAllString(b.String(), -1) {
				out = append(out, string(bytes.TrimRight([]byte(e), "/>")))
			}
			return out
		}
		if want, got := elements(&whole), elements(&bare); !slices.Equal(want, got) {
			t.Errorf("%s: %d PCI elements, want %d", name, len(got), len(want))
		}
		if found := others.FindString(bare.String()); found != "" {
			t.Errorf("%s: the skeleton has %s", name, found)
		}
		if _, err := Decode(bare.Bytes()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
