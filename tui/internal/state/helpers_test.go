package state_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/pathsel/diff"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/testkit/longtest"
	"github.com/topoctl/topoctl/tui/internal/state"
)

// An ordinary run tries the properties on fewer cases.
func TestMain(m *testing.M) { longtest.Main(m) }

const second = int64(1e9)

const agent = record.AgentPrefix + "http://n1:9411"

func ptr[T any](v T) *T { return &v }

// sample is a look at ports of 1 GB/s.
func sample(at int64, ports ...counters.Port) *record.Record {
	return &record.Record{AtNS: at, Source: record.SourceCounters, Counters: &counters.Sample{AtNS: at, Ports: ports}}
}

func port(id topo.ID, sent, received uint64) counters.Port {
	return counters.Port{ID: id, State: "up", BytesPerSec: ptr(topo.Rate(1e9)), SentBytes: &sent, ReceivedBytes: &received}
}

// values has "?" for what is not known.
func values(s *state.Series) string {
	out := []string{}
	for _, v := range s.Values() {
		if v != v {
			out = append(out, "?")
			continue
		}
		out = append(out, fmt.Sprint(v))
	}
	return fmt.Sprint(out)
}

// rate has "?" for nil.
func rate(r *topo.Rate) string {
	if r == nil {
		return "?"
	}
	return fmt.Sprint(int64(*r))
}

// differ compares all that states hold but the watcher; what never changes is compared by its
// address, and of what is computed from a topology whether it is there.
func differ(a, b *state.State) string {
	return cmp.Diff(a, b, cmpopts.EquateNaNs(), cmp.Exporter(func(reflect.Type) bool { return true }),
		cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".watch" }, cmp.Ignore()),
		cmp.Comparer(func(a, b *topo.Topology) bool { return a == b }),
		cmp.Comparer(func(a, b *doctor.Report) bool { return (a == nil) == (b == nil) }), cmp.Comparer(func(a, b *diff.Report) bool { return (a == nil) == (b == nil) }),
		cmp.Comparer(func(a, b *counters.Sample) bool { return a == b }), cmp.Comparer(func(a, b *record.Engine) bool { return a == b }))
}
