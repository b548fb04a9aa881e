package lane

import (
	"slices"
	"testing"
	"time"

	"github.com/topoctl/topoctl/probe"
)

func TestParseStat(t *testing.T) {
	if all, busy, ok := parseStat("cpu  10 1 5 1000 200 2 3 4 9 9\ncpu0 1 1 1 1 1 1 1 1\n"); all != 1225*tick || busy != 25*tick || !ok {
		t.Errorf("%v of %v, %v", busy, all, ok)
	}
	for _, text := range []string{"", "cpu 1 2 3", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3 4 5 6 7 -8", "cpu 1 2 3 4 x 6 7 8", "cpu 9223372036854775807 2 3 4 5 6 7 8"} {
		if all, busy, ok := parseStat(text); ok {
			t.Errorf("%q: %v of %v", text, busy, all)
		}
	}
}

func TestLoadSince(t *testing.T) {
	before := &Load{All: 10 * time.Second, Busy: time.Second, Own: time.Second}
	for _, c := range []struct {
		now  *Load
		want []probe.ProcessorLoad
	}{
		{&Load{All: 12 * time.Second, Busy: 2500 * time.Millisecond, Own: 1200 * time.Millisecond}, []probe.ProcessorLoad{{Host: "n1", Busy: 0.75, Own: 0.1}}},
		{before, nil},  // no time has passed
		{&Load{}, nil}, // the host was started again
		{&Load{All: 12 * time.Second, Busy: 9 * time.Second, Own: time.Second}, nil}, // impossible
		{nil, nil},
	} {
		if got := c.now.Since(before, "n1"); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %+v", c.now, got)
		}
	}
}
