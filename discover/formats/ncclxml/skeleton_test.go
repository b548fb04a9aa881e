package ncclxml

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/testkit/fixturetest"
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

// What is said of the size is the number of elements, and of a host without RDMA the interfaces are written.
func TestSize(t *testing.T) {
	element := regexp.MustCompile(`<[a-z]`)
	for name, want := range map[string]string{
		"nvl72-synthetic":        "has %d elements, and NCCL since 2.21 reads 255 at most",
		"aws-p5-44nic-synthetic": "has %d elements; NCCL since 2.21 has room for 255 and may come to 263",
		"dgx-h100":               "", "mi300x-8nic": "", "cpu-2eth": "",
	} {
		top := fixturetest.Topology(t, name)
		var buf bytes.Buffer
		if err := Encode(&buf, top); err != nil {
			t.Fatal(err)
		}
		if want != "" {
			want = fmt.Sprintf(want, len(element.FindAll(buf.Bytes(), -1)))
		}
		if got := TooLarge(top, false); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		if got, want := bytes.Contains(buf.Bytes(), []byte(`name="eno1"`)), name == "cpu-2eth"; got != want {
			t.Errorf("%s: eno1 is written: %v", name, got)
		}
	}
}
