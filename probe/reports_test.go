package probe_test

import (
	"testing"

	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// An ordinary run tries the properties on fewer cases.
func TestMain(m *testing.M) { longtest.Main(m) }

// reportFixtures are the reports in testdata, which tests of all that reads reports share, and the fixture that all hosts
// of each are. Figures in them are made up.
var reportFixtures = map[string]string{"all-waived": "cpu-2eth", "bad-cable": "dgx-h100", "dgx-pair": "dgx-h100", "interrupted": "epyc-nps4", "local-cpu": "cpu-2eth"}

// reportNames are sorted.
var reportNames = []string{"all-waived", "bad-cable", "dgx-pair", "interrupted", "local-cpu"}

// report reads a report of testdata. Its hosts have the fingerprint that their fixture has today, so that -update keeps
// them those of the fixture.
func report(tb testing.TB, name string) *probe.Report {
	tb.Helper()
	r, err := probe.Decode(file(tb, name))
	if err != nil {
		tb.Fatal(err)
	}
	fingerprint := fixturetest.Topology(tb, reportFixtures[name]).Fingerprint()
	for i := range r.Hosts {
		r.Hosts[i].Fingerprint = fingerprint
	}
	return r
}
