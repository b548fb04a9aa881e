package kv

// Plan is how much each pair of ranks transfers for a prompt.
type Plan struct {
	Tokens int
	Layers int
	Pairs  []PairPlan
	// Sums over pairs and layers.
	Bytes, Descriptors, Pieces int64
}

// PairPlan is what a prefill rank sends to a decode rank for each layer.
type PairPlan struct {
	Pair
	LayerBytes int64
	// LayerDescriptors are strided copies, LayerPieces what is contiguous on both sides.
	LayerDescriptors, LayerPieces int64
	// MinPiece and MaxPiece are the bytes of the smallest and the largest piece; 0 without
	// tokens.
	MinPiece, MaxPiece int64
}

// Plan sums up the descriptors of a prompt of n tokens, in a time that does not depend on n.
// A negative n counts as 0.
func (r *Reslice) Plan(tokens int) Plan {
	p := Plan{Tokens: max(0, tokens), Layers: r.Model.Layers, Pairs: make([]PairPlan, 0, len(r.pairs))}
	counts := r.runLengths(p.Tokens)
	var last PairPlan // pairs with the same number of common heads move the same amount
	for _, pair := range r.pairs {
		if last.Heads != pair.Heads {
			last = r.pairPlan(pair, counts)
		}
		last.Pair = pair
		p.Pairs = append(p.Pairs, last)
		p.Bytes += last.LayerBytes * int64(p.Layers)
		p.Descriptors += last.LayerDescriptors * int64(p.Layers)
		p.Pieces += last.LayerPieces * int64(p.Layers)
	}
	return p
}

func (r *Reslice) pairPlan(pair Pair, counts []runCount) PairPlan {
	p := PairPlan{Pair: pair}
	for _, c := range counts {
		s := r.shape(pair, c.tokens)
		pieces, descriptors := c.times, c.times
		for i, a := range s.axes {
			pieces *= a.n
			if i > 0 {
				descriptors *= a.n
			}
		}
		p.LayerPieces += pieces
		p.LayerDescriptors += descriptors
		p.LayerBytes += pieces * s.unit
		if p.MinPiece == 0 || s.unit < p.MinPiece {
			p.MinPiece = s.unit
		}
		p.MaxPiece = max(p.MaxPiece, s.unit)
	}
	return p
}

// runCount is how many runs have a number of tokens.
type runCount struct {
	tokens int
	times  int64
}

// runLengths counts runs by their length. They repeat whenever pages of both sides end
// together.
func (r *Reslice) runLengths(tokens int) []runCount {
	a, b := r.Prefill.PageTokens, r.Decode.PageTokens
	for b != 0 {
		a, b = b, a%b
	}
	period := r.Prefill.PageTokens / a * r.Decode.PageTokens
	var counts []runCount
	add := func(n int, times int64) {
		for run := range r.runs(n) {
			i := 0
			for i < len(counts) && counts[i].tokens != run.tokens {
				i++
			}
			if i == len(counts) {
				counts = append(counts, runCount{tokens: run.tokens})
			}
			counts[i].times += times
		}
	}
	if tokens >= period {
		add(period, int64(tokens/period))
	}
	add(tokens%period, 1)
	return counts
}
