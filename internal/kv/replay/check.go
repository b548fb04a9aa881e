package replay

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
)

// A check is independent of descriptors: it goes through the ranks, layers, heads and tokens of
// a side and computes what must be where. It detects parts that went to the wrong rank, head,
// page, layer or request.

// pattern makes the cache content of a head and token: keys (part 0) or values.
func pattern(out []byte, request, layer, part, token, head int) {
	x := uint64(1)
	for _, v := range [...]int{request, layer, part, token, head} {
		x = (x ^ uint64(v)) * 0x9e3779b97f4a7c15
		x ^= x >> 29
	}
	var word [8]byte
	for len(out) > 0 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(word[:], x)
		out = out[copy(out, word[:]):]
	}
}

// fill makes the cache of a transfer on the prefill side.
func (m *mover) fill(ctx context.Context, j *job) error {
	return m.each(ctx, j, m.prefill, func(p pageRef, page []byte) error {
		clear(page)
		m.cells(j, m.prefill, p, page, func(cell, want []byte) { copy(cell, want) })
		region, offset := m.prefill.at(p.rank, p.layer, j.source[p.number])
		_, err := m.memory(&j.t, !m.pull(), region).WriteAt(page, offset)
		return err
	})
}

// verify reads the cache of a transfer back from the decode side.
func (m *mover) verify(ctx context.Context, j *job) error {
	return m.each(ctx, j, m.decode, func(p pageRef, page []byte) error {
		region, offset := m.decode.at(p.rank, p.layer, j.dest[p.number])
		if _, err := m.memory(&j.t, m.pull(), region).ReadAt(page, offset); err != nil {
			return fmt.Errorf("reading it back: %w", err)
		}
		right, wrong := int64(0), 0
		m.cells(j, m.decode, p, page, func(cell, want []byte) {
			if bytes.Equal(cell, want) {
				right += int64(len(cell))
			} else {
				wrong++
			}
		})
		if wrong > 0 {
			return fmt.Errorf("wrong bytes at decode rank %d, layer %d, page %d: %d heads of tokens of request %d", p.rank, p.layer, p.number, wrong, j.t.Request)
		}
		m.checked.Add(right)
		return nil
	})
}

// pageRef is a page of a prompt, on a rank and in a layer.
type pageRef struct{ rank, layer, number int }

// each visits the pages of a transfer on one side, until ctx ends.
func (m *mover) each(ctx context.Context, j *job, s *side, visit func(pageRef, []byte) error) error {
	page := make([]byte, s.pool.PageBytes)
	for rank := range s.layout.TP {
		for layer := j.t.FromLayer; layer < j.t.ToLayer; layer++ {
			for number := j.t.FromToken / s.layout.PageTokens; number*s.layout.PageTokens < j.t.ToToken; number++ {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err := visit(pageRef{rank, layer, number}, page); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// cells visits what a page has of a transfer, by part, token and head, with what it should
// be.
func (m *mover) cells(j *job, s *side, p pageRef, page []byte, visit func(cell, want []byte)) {
	want := make([]byte, s.pool.HeadBytes)
	first := p.number * s.layout.PageTokens
	end := min(first+s.layout.PageTokens, j.t.ToToken)
	for part := range s.pool.Parts {
		for token := max(first, j.t.FromToken); token < end; token++ {
			for head := range s.pool.Heads {
				at := s.vector(part, token-first, head)
				pattern(want, j.t.Request, p.layer, part, token, s.head(m.o.Serve.Cache.Model, p.rank, head))
				visit(page[at:at+s.pool.HeadBytes], want)
			}
		}
	}
}
