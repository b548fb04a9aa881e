package redact_test

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/redact"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// eachIdentity visits what identifies a machine, with a value that has the form of its placeholder.
func eachIdentity(t *topo.Topology, visit func(value *string, hostile string)) {
	n := 0
	each := func(value *string, format string) {
		if strings.Trim(*value, "0:-.") != "" { // nothing, or zero
			n++
			visit(value, fmt.Sprintf(format, n))
		}
	}
	each(&t.Host.Name, "host-9%03d")
	each(&t.Host.MachineIDSHA256, "%060d9000")
	for i := range t.GPUs {
		g := &t.GPUs[i]
		each(&g.UUID, "GPU-00000000-0000-0000-0000-000000009%03d")
		each(&g.Serial, "SN00009%03d")
		if g.NVLinkFabric != nil {
			each(&g.NVLinkFabric.ClusterUUID, "00000000-0000-0000-0000-000000009%03d")
		}
	}
	for i := range t.RDMADevices {
		r := &t.RDMADevices[i]
		each(&r.NodeGUID, "0200:0000:0000:9%03d")
		each(&r.SysImageGUID, "0200:0000:0009:0%03d")
	}
	for i := range t.Netdevs {
		d := &t.Netdevs[i]
		if len(d.MAC) == len("02:00:00:00:00:00") {
			each(&d.MAC, "02:00:00:09:99:%02x")
		}
		for j := range d.Addresses {
			if p := netip.MustParsePrefix(d.Addresses[j]); p.Addr().Is4() && !p.Addr().IsLoopback() {
				each(&d.Addresses[j], "240.99.%d.9/24")
			}
		}
	}
	for i := range t.NVMes {
		each(&t.NVMes[i].Serial, "SN00009%03d")
	}
}

// Of every fixture, as it is and with values that look like placeholders, no identity is left, and
// a document that was redacted, written and read stays as it is.
func TestNoIdentityIsLeft(t *testing.T) {
	captures := fixtures.Captures() // redacted already
	for _, name := range longtest.Sample(slices.Concat(captures, fixtures.Names()), 8) {
		t.Run(name, func(t *testing.T) {
			top := fixturetest.Topology(t, name)
			top.Origin = "" // it has the host's name
			var identities []string
			if !slices.Contains(captures, name) {
				eachIdentity(top, func(value *string, _ string) { identities = append(identities, *value) })
			}
			checkRedacted(t, top, identities)

			identities = nil
			eachIdentity(top, func(value *string, hostile string) {
				*value = hostile
				identities = append(identities, hostile)
			})
			for i := range top.NVMes {
				volume := fmt.Sprintf("000000-0000-0000-0000-0000-0000-009%03d", i)
				top.NVMes[i].Model = "LVM PV " + volume + " on /dev/nvme0n1"
				identities = append(identities, volume)
			}
			checkRedacted(t, top, identities)
		})
	}
}

func checkRedacted(t *testing.T, top *topo.Topology, identities []string) {
	t.Helper()
	once := redactedDocument(t, top)
	for _, s := range identities {
		if strings.Contains(once, s) && regexp.MustCompile(`\b`+regexp.QuoteMeta(s)+`\b`).MatchString(once) {
			t.Errorf("%q is left", s)
		}
	}
	back, err := topo.Decode([]byte(once))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(once, redactedDocument(t, back)); diff != "" {
		t.Errorf("redacted twice:\n%s", diff)
	}
}

func redactedDocument(t *testing.T, top *topo.Topology) string {
	t.Helper()
	doc, err := redact.New(top).Topology(top).Encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(doc)
}
