package serve

import (
	"container/list"

	"github.com/topoctl/topoctl/internal/kv"
)

// prefixes is a least-recently-used cache of prompt blocks. nil keeps nothing.
type prefixes struct {
	maxBlocks int
	blocks    map[int64]*list.Element
	recent    *list.List // latest first
}

func newPrefixes(p *Pool) *prefixes {
	most := p.PrefixPages * p.PageTokens / kv.BlockTokens
	if most == 0 {
		return nil
	}
	return &prefixes{maxBlocks: most, blocks: map[int64]*list.Element{}, recent: list.New()}
}

// fullBlocks are the full blocks of a prompt; only those can be shared as a prefix.
func fullBlocks(r *kv.Request) []int64 { return r.Blocks[:min(len(r.Blocks), r.Input/kv.BlockTokens)] }

// cachedTokens is how many tokens of a prompt are cached. The last token is always computed, since it
// produces the answer's first token.
func (p *prefixes) cachedTokens(r *kv.Request) int {
	if p == nil {
		return 0
	}
	n := 0
	for _, b := range fullBlocks(r) {
		if p.blocks[b] == nil {
			break
		}
		n++
	}
	p.touch(r.Blocks[:n])
	return min(n*kv.BlockTokens, r.Input-1)
}

// insert adds the full blocks of a prompt.
func (p *prefixes) insert(r *kv.Request) {
	if p != nil {
		p.touch(fullBlocks(r))
	}
}

// touch marks blocks as used, from the end, since a prefix is useless without its beginning.
func (p *prefixes) touch(blocks []int64) {
	for i := len(blocks) - 1; i >= 0; i-- {
		if e := p.blocks[blocks[i]]; e != nil {
			p.recent.MoveToFront(e)
			continue
		}
		p.blocks[blocks[i]] = p.recent.PushFront(blocks[i])
		if p.recent.Len() > p.maxBlocks {
			last := p.recent.Back()
			p.recent.Remove(last)
			delete(p.blocks, last.Value.(int64))
		}
	}
}
