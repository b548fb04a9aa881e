package doctor_test

import (
	"testing"

	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/testkit/importtest"
)

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
			"link-degraded", "link-disagrees", "implausible-bridge-link", "nic-slot-limited", "shared-slot", "rdma-no-pci",
			"mig-enabled", "gpu-driver-missing", "no-gdr-path", "iommu-translate", "memlock", "acs-redirect", "port-down", "no-usable-port",
			"uverbs-inaccessible", "rdma-lag", "pf-and-vf-visible", "software-rdma", "gid-missing", "gid-none-routable", "gid-index-differs",
			"traffic-class-unset", "mtu-mismatch", "mtu-small", "pkey-mismatch", "rate-mismatch", "mixed-link-layer", "firmware-differs", "rails-share-subnet",
			"nic-role", "dpu", "nic-unassigned", "nic-oversubscribed", "vm-flat", "partial-view", "facts-unread", "facts-conflict",
		},
	}
	for name, top := range importtest.Hosts(t) {
		t.Run(name, func(t *testing.T) {
			r := run(t, top)
			if testing.Verbose() {
				t.Log("\n" + r.Text(doctor.TextOptions{All: true}))
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
