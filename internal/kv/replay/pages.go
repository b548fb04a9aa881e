package replay

import (
	"math/rand/v2"

	"github.com/topoctl/topoctl/internal/kv"
)

// side is the memory layout of the prefill or the decode instances.
type side struct {
	layout kv.Side
	pool   kv.Pool
	layers int
	pages  int
	// ranksPerRegion is how many ranks share a region.
	ranksPerRegion int
	tables         []*tables // by instance
}

func newSide(m kv.Model, s kv.Side, pages, instances, regions int, rng *rand.Rand) (*side, error) {
	pool, err := s.Pool(m)
	if err != nil {
		return nil, err
	}
	out := &side{layout: s, pool: pool, layers: m.Layers, pages: pages, ranksPerRegion: s.TP / regions}
	for range instances {
		t := &tables{byRequest: map[int][]uint32{}, free: make([]uint32, pages)}
		for i, p := range rng.Perm(pages) {
			t.free[i] = uint32(p)
		}
		out.tables = append(out.tables, t)
	}
	return out, nil
}

// at is the region of an instance that has a page of a rank and a layer, and its offset there.
func (s *side) at(rank, layer int, page uint32) (region int, offset int64) {
	return rank / s.ranksPerRegion, (int64(rank%s.ranksPerRegion*s.layers+layer)*int64(s.pages) + int64(page)) * s.pool.PageBytes
}

// vector is the offset within a page of one head and token, in its keys (part 0) or values.
func (s *side) vector(part, token, head int) int64 {
	row := token*s.pool.Heads + head
	if s.layout.Order == kv.HND {
		row = head*s.layout.PageTokens + token
	}
	return int64(part*s.layout.PageTokens*s.pool.Heads+row) * s.pool.HeadBytes
}

// head is the model's number of a head of a rank.
func (s *side) head(m kv.Model, rank, head int) int {
	switch {
	case m.MLA():
		return 0
	case s.layout.TP > m.KVHeads:
		return rank / (s.layout.TP / m.KVHeads)
	}
	return rank*s.pool.Heads + head
}

// tables are the page tables of an instance, in the order of tokens. All ranks and layers use
// the same page numbers.
type tables struct {
	free      []uint32
	byRequest map[int][]uint32 // by request
}

// resize allocates pages to a request or frees its last ones. The serving system never asks
// for more pages than there are.
func (t *tables) resize(request, pages int) {
	has := t.byRequest[request]
	for len(has) > pages {
		t.free = append(t.free, has[len(has)-1])
		has = has[:len(has)-1]
	}
	if more := pages - len(has); more > 0 {
		left := len(t.free) - more
		has = append(has, t.free[left:]...)
		t.free = t.free[:left]
	}
	if pages == 0 {
		delete(t.byRequest, request)
		return
	}
	t.byRequest[request] = has
}
