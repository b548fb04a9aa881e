package doctor_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/discover/topo/hwlocxml"
	"github.com/topoctl/topoctl/discover/topo/ncclxml"
	"github.com/topoctl/topoctl/discover/topo/nvsmi"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

const shared = "../../../shared/data"

// imports are the hosts of other tools' files in ../shared/data, by the file.
func imports(t *testing.T) map[string]*topo.Topology {
	t.Helper()
	var files []string
	for _, pattern := range []string{"nccl-xml/*.xml", "captures/hwloc-xml/*.gz", "topo-matrices/*.txt"} {
		found, err := filepath.Glob(filepath.Join(shared, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) == 0 {
		t.Skipf("%s is not here: published files cannot be read", shared)
	}
	out := map[string]*topo.Topology{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, ".gz") {
			z, err := gzip.NewReader(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			if data, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		decode := nvsmi.Decode
		switch {
		case ncclxml.Detect(data):
			decode = ncclxml.Decode
		case hwlocxml.Detect(data):
			decode = hwlocxml.Decode
		}
		if top, err := decode(data); err == nil {
			out[filepath.Base(file)] = top
		}
	}
	if len(out) < 20 {
		t.Fatalf("%d of %d files could be read", len(out), len(files))
	}
	return out
}

// What another tool's file does not tell is never ok. The right-hand side are
// facts that these formats have no word for.
func TestImportsAreNeverJudgedByWhatTheyLack(t *testing.T) {
	lacks := map[string][]doctor.Code{
		"import:nccl": {
			"link-degraded", "link-disagrees", "port-down", "uverbs-inaccessible", "rdma-lag", "pf-and-vf-visible", "gpu-driver-missing",
			"no-gdr-path", "iommu-translate", "memlock", "acs-redirect", "gid-missing", "gid-none-routable", "gid-index-differs",
			"traffic-class-unset", "mtu-mismatch", "mtu-small", "pkey-mismatch", "mixed-link-layer", "rails-share-subnet", "p2p-disabled",
			"mig-enabled", "partial-view", "facts-unread", "facts-conflict", "nic-unassigned", "nic-oversubscribed",
		},
		"import:hwloc": {
			"link-degraded", "link-disagrees", "uverbs-inaccessible", "pf-and-vf-visible", "no-gdr-path", "iommu-translate", "memlock", "acs-redirect",
			"gid-index-differs", "traffic-class-unset", "mtu-mismatch", "mtu-small", "pkey-mismatch", "rate-mismatch", "nic-slot-limited",
			"rails-share-subnet", "p2p-disabled", "mig-enabled", "partial-view", "facts-unread", "facts-conflict",
		},
		"import:nvsmi": {
			"link-degraded", "link-disagrees", "implausible-bridge-link", "nic-slot-limited", "shared-slot", "rdma-no-pci", "nvlink-missing", "nvlink-uneven",
			"mig-enabled", "gpu-driver-missing", "no-gdr-path", "iommu-translate", "memlock", "acs-redirect", "port-down", "no-usable-port",
			"uverbs-inaccessible", "rdma-lag", "pf-and-vf-visible", "software-rdma", "gid-missing", "gid-none-routable", "gid-index-differs",
			"traffic-class-unset", "mtu-mismatch", "mtu-small", "pkey-mismatch", "rate-mismatch", "mixed-link-layer", "firmware-differs", "rails-share-subnet",
			"nic-role", "dpu", "nic-unassigned", "nic-oversubscribed", "vm-flat", "partial-view", "facts-unread", "facts-conflict",
		},
	}
	for name, top := range imports(t) {
		t.Run(name, func(t *testing.T) {
			r := run(t, top)
			if testing.Verbose() {
				t.Log("\n" + readable(r))
			}
			for _, c := range r.Checks {
				for _, code := range lacks[top.Origin] {
					if c.Code == code && c.Status == doctor.OK {
						t.Errorf("%s is ok (%s), and %s files do not tell", c.Code, c.Note, top.Origin)
					}
				}
			}
		})
	}
}
