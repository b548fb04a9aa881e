// Package importtest reads the published files of other tools that tests are about. Only tests
// import it.
package importtest

import (
	"testing"

	"github.com/topoctl/topoctl/discover/formats/hwlocxml"
	"github.com/topoctl/topoctl/discover/formats/ncclxml"
	"github.com/topoctl/topoctl/discover/formats/texts"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// Hosts are the hosts of all published files, by the file's name. The test is skipped where they
// are not there.
func Hosts(tb testing.TB) map[string]*topo.Topology {
	tb.Helper()
	out := HostsIfThere(tb)
	if len(out) == 0 {
		tb.Skipf("%s is not there: published files of other tools cannot be read", fixturetest.Shared)
	}
	return out
}

// HostsIfThere are Hosts, or none where the files are not there.
func HostsIfThere(tb testing.TB) map[string]*topo.Topology {
	tb.Helper()
	out := map[string]*topo.Topology{}
	for _, format := range []struct {
		folder, ending string
		decode         func([]byte) (*topo.Topology, error)
	}{
		{"nccl-xml", "xml", ncclxml.Decode}, {"captures/hwloc-xml", "xml.gz", hwlocxml.Decode}, {"topo-matrices", "txt", texts.Decode},
	} {
		for name, data := range fixturetest.PublishedIfThere(tb, format.folder+"/*."+format.ending) {
			top, err := format.decode(data)
			if err != nil {
				continue // NCCL's channels, or a matrix of peer access alone
			}
			out[name] = top
		}
	}
	if len(out) > 0 && len(out) < 40 {
		tb.Fatalf("%d published files could be read, want 40 and more", len(out))
	}
	return out
}
