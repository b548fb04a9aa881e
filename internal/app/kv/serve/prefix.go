package serve

import (
	"container/list"

	"github.com/topoctl/topoctl/internal/app/kv"
)

// prefixes are blocks of prompts that an instance keeps; the ones not used for longest give
// way. nil keeps nothing.
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

// fullBlocks are the blocks of a prompt that are full: others are no prefix of anything.
func fullBlocks(r *kv.Request) []int64 { return r.Blocks[:min(len(r.Blocks), r.Input/kv.BlockTokens)] }

// cachedTokens is how many tokens of a prompt need not be computed. The last one has to be: it
// gives the answer's first.
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

// insert remembers a prompt.
func (p *prefixes) insert(r *kv.Request) {
	if p != nil {
		p.touch(fullBlocks(r))
	}
}

// touch uses blocks, those at the end first: a prefix is no use without its beginning.
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
