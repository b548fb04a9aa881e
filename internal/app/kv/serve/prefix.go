package serve

import (
	"container/list"

	"github.com/topoctl/topoctl/internal/app/kv"
)

// prefixes are blocks of prompts that an instance keeps; the ones not used for longest give
// way. nil keeps nothing.
type prefixes struct {
	most   int
	blocks map[int64]*list.Element
	used   *list.List // latest first
}

func newPrefixes(p *Pool) *prefixes {
	most := p.PrefixPages * p.PageTokens / kv.BlockTokens
	if most == 0 {
		return nil
	}
	return &prefixes{most: most, blocks: map[int64]*list.Element{}, used: list.New()}
}

// whole are the blocks of a prompt that are full: others are no prefix of anything.
func whole(r *kv.Request) []int64 { return r.Blocks[:min(len(r.Blocks), r.Input/kv.BlockTokens)] }

// find is how many tokens of a prompt need not be computed. The last one has to be: it
// gives the answer's first.
func (p *prefixes) find(r *kv.Request) int {
	if p == nil {
		return 0
	}
	n := 0
	for _, b := range whole(r) {
		if p.blocks[b] == nil {
			break
		}
		n++
	}
	p.touch(r.Blocks[:n])
	return min(n*kv.BlockTokens, r.Input-1)
}

// keep remembers a prompt.
func (p *prefixes) keep(r *kv.Request) {
	if p != nil {
		p.touch(whole(r))
	}
}

// touch uses blocks, those at the end first: a prefix is no use without its beginning.
func (p *prefixes) touch(blocks []int64) {
	for i := len(blocks) - 1; i >= 0; i-- {
		if e := p.blocks[blocks[i]]; e != nil {
			p.used.MoveToFront(e)
			continue
		}
		p.blocks[blocks[i]] = p.used.PushFront(blocks[i])
		if p.used.Len() > p.most {
			last := p.used.Back()
			p.used.Remove(last)
			delete(p.blocks, last.Value.(int64))
		}
	}
}
