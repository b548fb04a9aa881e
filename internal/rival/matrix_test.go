package rival_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/internal/rival"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

func parse(t *testing.T, text string) *rival.Matrix {
	t.Helper()
	m, err := rival.ParseMatrix([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Mooncake's own conformance cases for its matrix (research/mooncake.md, f), those about the numbers of
// NICs. A filter on names (2), retries (6) and affinities of peers (9, 10) have no part here.
func TestConformance(t *testing.T) {
	t.Run("1 discovered, written and read again is the same", func(t *testing.T) {
		m, err := rival.Discover(prepare(t, fixturetest.Topology(t, "dgx-h100")), []int{0, 1})
		if err != nil {
			t.Fatal(err)
		}
		again := parse(t, string(m.JSON()))
		if string(again.JSON()) != string(m.JSON()) || len(again.Entries()) != 10 {
			t.Errorf("%s became %s", m.JSON(), again.JSON())
		}
	})
	t.Run("3 two NICs, each preferred by one node", func(t *testing.T) {
		m := parse(t, `{"cpu:0":[["erdma_0"],["erdma_1"]],"cpu:1":[["erdma_1"],["erdma_0"]]}`)
		if got := slices.Sorted(slices.Values(m.Devices())); !slices.Equal(got, []string{"erdma_0", "erdma_1"}) {
			t.Errorf("devices %v", got)
		}
	})
	t.Run("4 one NIC named four times is one", func(t *testing.T) {
		m := parse(t, `{"cpu:0":[["erdma_0"],["erdma_0"]],"cpu:1":[["erdma_0"],["erdma_0"]]}`)
		if got := m.Devices(); len(got) != 1 {
			t.Errorf("devices %v", got)
		}
	})
	t.Run("5 four NICs", func(t *testing.T) {
		m := parse(t, `{"cpu:0":[["erdma_0"],["erdma_1"]],"cpu:1":[["erdma_2"],["erdma_3"]]}`)
		if got := m.Devices(); len(got) != 4 {
			t.Errorf("devices %v", got)
		}
	})
	t.Run("7 no NIC at all", func(t *testing.T) {
		if share, text := wrong(t, parse(t, `{"gpu:0":[[],[]]}`)); share != 0 || text != "" {
			t.Errorf("%.2f\n%s", share, text)
		}
	})
	t.Run("8 the only NIC fails", func(t *testing.T) {
		m := parse(t, `{"gpu:0":[["mlx5_2"],[]]}`)
		if _, text := wrong(t, m); text != "gpu:0: mlx5_2 100 %\n" {
			t.Error(text)
		}
		m.Disable("mlx5_2")
		if _, text := wrong(t, m); text != "" {
			t.Error(text)
		}
	})
	t.Run("11 a failed NIC keeps its place", func(t *testing.T) {
		m := parse(t, `{"cpu:0":[["P0","P1","P2"],[]]}`)
		before := slices.Clone(m.Devices())
		m.Disable("P0")
		if !slices.Equal(before, m.Devices()) {
			t.Errorf("%v became %v", before, m.Devices())
		}
	})
}

func TestMalformed(t *testing.T) {
	for _, text := range []string{
		``, `[]`, `null`, `"cpu:0"`, `{"cpu:0":[]}`, `{"cpu:0":[["a"]]}`, `{"cpu:0":[["a"],["b"],["c"]]}`, `{"cpu:0":{"a":"b"}}`,
		`{"cpu:0":["a","b"]}`, `{"cpu:0":[null,["a"]]}`, `{"cpu:0":[["a"],[1]]}`, `{"cpu:0":null}`, `{"cpu:0":[["a"],["b"]]`,
		`{"a":"` + strings.Repeat("x", 1<<20) + `"}`,
	} {
		if _, err := rival.ParseMatrix([]byte(text)); !errors.Is(err, rival.ErrMalformed) {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}

func FuzzParseMatrix(f *testing.F) {
	f.Add([]byte(`{"cpu:0":[["mlx5_0","mlx5_1"],["mlx5_2"]],"cuda:0":[["mlx5_0"],["mlx5_1"]]}`))
	f.Add([]byte(`{"":[[],[]],"*":[[""],["a","a"]]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := rival.ParseMatrix(data)
		if err != nil {
			return
		}
		again, err := rival.ParseMatrix(m.JSON())
		if err != nil || string(again.JSON()) != string(m.JSON()) {
			t.Errorf("%q became %q (%v)", m.JSON(), again.JSON(), err)
		}
		if routes, err := m.Misroutes(); err != nil || len(routes) > len(m.Entries()) {
			t.Errorf("%q: %d routes, %v", data, len(routes), err)
		}
	})
}
