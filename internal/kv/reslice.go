package kv

import "iter"

// Reslice maps the cache of a prefill side to that of a decode side. It is the same for every
// layer.
type Reslice struct {
	Model           Model
	Prefill, Decode Side
	source, dest    Pool
	pairs           []Pair
}

// Pair is a prefill rank that sends heads to a decode rank. A decode rank gets each head from
// only one prefill rank, even if several have it.
type Pair struct {
	Prefill, Decode   int // ranks
	Heads             int // how many they have in common; with MLA 1
	fromHead, intoRow int // first of them by the pools' own count
}

// Descriptor is a strided copy within a page of the prefill rank and one of the decode
// rank, the same for each layer: Count pieces of Length bytes.
type Descriptor struct {
	SourcePage, DestPage     int   // of the prompt's pages on each side, from 0
	Source, Dest             int64 // offsets of the first piece in its page
	Length                   int64 // of a piece, contiguous on both sides
	Count                    int64 // of pieces, at least 1
	SourceStride, DestStride int64 // from piece to piece; 0 with one
}

// New computes the mapping. The error says what does not fit.
func New(m Model, prefill, decode Side) (*Reslice, error) {
	r := &Reslice{Model: m, Prefill: prefill, Decode: decode}
	var err error
	if r.source, err = prefill.Pool(m); err != nil {
		return nil, err
	}
	if r.dest, err = decode.Pool(m); err != nil {
		return nil, err
	}
	for d := range decode.TP {
		lo := decode.firstHead(m, d)
		for p := range prefill.TP {
			from := prefill.firstHead(m, p)
			first, end := max(lo, from), min(lo+r.dest.Heads, from+r.source.Heads)
			if first < end && r.sourceRank(first, d) == p {
				r.pairs = append(r.pairs, Pair{Prefill: p, Decode: d, Heads: end - first, fromHead: first - from, intoRow: first - lo})
			}
		}
	}
	return r, nil
}

// sourceRank is the prefill rank from which a decode rank gets a head. The decode ranks that
// need it are spread evenly over the prefill ranks that have it.
func (r *Reslice) sourceRank(head, decode int) int {
	total := r.Model.KVHeads
	if r.Model.MLA() {
		total = 1
	}
	have, want := max(1, r.Prefill.TP/total), max(1, r.Decode.TP/total)
	if r.Prefill.TP <= total {
		return head / r.source.Heads
	}
	return head*have + decode%want*have/want
}

// Pairs lists the pairs, by decode rank.
func (r *Reslice) Pairs() []Pair { return r.pairs }

// axis is a dimension of what is copied: how often, and how far apart on both sides.
type axis struct{ n, source, dest int64 }

// shape is how the tokens of one run go from page to page: pieces of unit bytes, and up to
// three axes of them, the one with the most pieces first.
type shape struct {
	unit int64
	axes []axis
}

// shape merges what is contiguous on both sides, for a run of tokens within one page on
// each.
func (r *Reslice) shape(pair Pair, tokens int) shape {
	sPart, sToken, sHead := r.Prefill.strides(r.source)
	dPart, dToken, dHead := r.Decode.strides(r.dest)
	axes := []axis{{int64(r.source.Parts), sPart, dPart}, {int64(tokens), sToken, dToken}, {int64(pair.Heads), sHead, dHead}}
	s := shape{unit: r.source.HeadBytes}
	for merged := true; merged; {
		merged = false
		rest := axes[:0]
		for _, a := range axes {
			switch {
			case a.n == 1:
			case a.source == s.unit && a.dest == s.unit:
				s.unit *= a.n
				merged = true
			default:
				rest = append(rest, a)
			}
		}
		axes = rest
	}
	s.axes = join(axes)
	for i := range s.axes {
		if s.axes[i].n > s.axes[0].n {
			s.axes[0], s.axes[i] = s.axes[i], s.axes[0]
		}
	}
	return s
}

// join makes one axis of two where the outer one goes on where the inner one ends, on both
// sides.
func join(axes []axis) []axis {
	for i := range axes {
		for j := range axes {
			in, out := axes[i], axes[j]
			if i != j && out.source == in.n*in.source && out.dest == in.n*in.dest {
				axes[i].n *= out.n
				return join(append(axes[:j:j], axes[j+1:]...))
			}
		}
	}
	return axes
}

// run is tokens within one page on each side.
type run struct{ from, tokens int }

// runs cuts tokens at the pages' ends of both sides.
func (r *Reslice) runs(tokens int) iter.Seq[run] {
	return func(yield func(run) bool) {
		for at := 0; at < tokens; {
			n := min(r.Prefill.PageTokens-at%r.Prefill.PageTokens, r.Decode.PageTokens-at%r.Decode.PageTokens, tokens-at)
			if !yield(run{at, n}) {
				return
			}
			at += n
		}
	}
}

// Descriptors gives the copies of one layer for a pair and a prompt of n tokens, in the
// order of tokens, without building a list.
func (r *Reslice) Descriptors(pair Pair, tokens int) iter.Seq[Descriptor] {
	return func(yield func(Descriptor) bool) {
		_, sToken, sHead := r.Prefill.strides(r.source)
		_, dToken, dHead := r.Decode.strides(r.dest)
		shapes := map[int]shape{}
		for run := range r.runs(tokens) {
			s, ok := shapes[run.tokens]
			if !ok {
				s = r.shape(pair, run.tokens)
				shapes[run.tokens] = s
			}
			d := Descriptor{SourcePage: run.from / r.Prefill.PageTokens, DestPage: run.from / r.Decode.PageTokens, Length: s.unit, Count: 1,
				Source: int64(run.from%r.Prefill.PageTokens)*sToken + int64(pair.fromHead)*sHead,
				Dest:   int64(run.from%r.Decode.PageTokens)*dToken + int64(pair.intoRow)*dHead}
			if !s.each(d, yield) {
				return
			}
		}
	}
}

// each gives the descriptors of a shape whose first piece is that of d. It says whether to
// go on.
func (s shape) each(d Descriptor, yield func(Descriptor) bool) bool {
	if len(s.axes) == 0 {
		return yield(d)
	}
	strided := s.axes[0]
	d.Count, d.SourceStride, d.DestStride = strided.n, strided.source, strided.dest
	return every(s.axes[1:], d, yield)
}

func every(axes []axis, d Descriptor, yield func(Descriptor) bool) bool {
	if len(axes) == 0 {
		return yield(d)
	}
	for range axes[0].n {
		if !every(axes[1:], d, yield) {
			return false
		}
		d.Source += axes[0].source
		d.Dest += axes[0].dest
	}
	return true
}
