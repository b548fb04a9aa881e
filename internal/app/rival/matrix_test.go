package rival_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/internal/app/rival"
	"github.com/topoctl/topoctl/internal/base/fixturetest"
)

func parse(t *testing.T, text string) *rival.Matrix {
	t.Helper()
	m, err := rival.ParseMatrix([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// last is a random source that is none.
func last(n int) int { return n - 1 }

// Mooncake's own conformance cases for its matrix (research/mooncake.md, f). Its
// second case, a filter on names, belongs to its discovery and has no part here.
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
	t.Run("6 retries go through all, also of the wildcard", func(t *testing.T) {
		m := parse(t, `{"cpu:0":[["erdma_0"],["erdma_1"]]}`)
		if e := m.Entries(); len(e) != 1 || e[0].Location != "cpu:0" {
			t.Errorf("entries %v", e)
		}
		for _, location := range []string{"cpu:0", rival.Wildcard} {
			first, ok1 := m.Select(location, 1, last)
			second, ok2 := m.Select(location, 2, last)
			if !ok1 || !ok2 || first+second != 1 {
				t.Errorf("%s: %d %v, %d %v", location, first, ok1, second, ok2)
			}
		}
	})
	t.Run("7 no NIC at all", func(t *testing.T) {
		m := parse(t, `{"gpu:0":[[],[]]}`)
		for retry := range 2 {
			if i, ok := m.Select("gpu:0", retry, last); ok {
				t.Errorf("retry %d gives %d", retry, i)
			}
		}
	})
	t.Run("8 the only NIC fails", func(t *testing.T) {
		m := parse(t, `{"gpu:0":[["mlx5_2"],[]]}`)
		if i, ok := m.Select("gpu:0", 0, last); !ok || i != 0 {
			t.Errorf("%d %v", i, ok)
		}
		m.Disable("mlx5_2")
		for retry := range 2 {
			if i, ok := m.Select("gpu:0", retry, last); ok {
				t.Errorf("retry %d gives %d", retry, i)
			}
		}
	})
	table := map[string][]string{"L": {"P0"}}
	t.Run("9 a failed NIC is in no affinity either", func(t *testing.T) {
		m := parse(t, `{"cuda:0":[["P0","P1"],[]]}`)
		m.Disable("P0")
		for retry := range 4 {
			if i, ok := m.SelectPeer("cuda:0", "L", table, retry, last); !ok || m.Devices()[i] != "P1" {
				t.Errorf("retry %d gives %d %v", retry, i, ok)
			}
		}
	})
	t.Run("10 the affinity decides", func(t *testing.T) {
		m := parse(t, `{"cuda:0":[["P0","P1"],[]]}`)
		for i := range 64 {
			if got, ok := m.SelectPeer("cuda:0", "L", table, 0, func(n int) int { return i % n }); !ok || m.Devices()[got] != "P0" {
				t.Errorf("pick %d is %d", i, got)
			}
		}
	})
	t.Run("11 a failed NIC keeps its place", func(t *testing.T) {
		m := parse(t, `{"cpu:0":[["P0","P1","P2"],[]]}`)
		before := m.Devices()
		m.Disable("P0")
		if !slices.Equal(before, m.Devices()) {
			t.Errorf("%v became %v", before, m.Devices())
		}
		if i, ok := m.Select("cpu:0", 0, last); !ok || before[i] != "P2" {
			t.Errorf("%d %v", i, ok)
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
		for _, e := range append(m.Entries(), rival.Entry{Location: rival.Wildcard}, rival.Entry{Location: "none"}) {
			for retry := range 3 {
				if i, ok := m.Select(e.Location, retry, last); ok && (i < 0 || i >= len(m.Devices())) {
					t.Errorf("%q: %s, retry %d: number %d of %d", data, e.Location, retry, i, len(m.Devices()))
				}
			}
		}
		if routes, err := m.Misroutes(); err != nil || len(routes) > len(m.Entries()) {
			t.Errorf("%q: %d routes, %v", data, len(routes), err)
		}
	})
}
