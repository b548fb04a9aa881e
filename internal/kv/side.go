package kv

import "fmt"

// Order is how the elements of a page follow each other. A page holds the keys of its
// tokens, then their values.
type Order string

// Orders by the names that vLLM gives them. With MLA there is one row for each token and the
// order makes no difference.
const (
	NHD Order = "NHD" // [K|V][token][head][dim]
	HND Order = "HND" // [K|V][head][token][dim]
)

// Side is how an instance stores its cache. Each tensor rank has a pool of pages for each
// layer; all pools use the same page numbers.
type Side struct {
	TP         int // tensor ranks
	PageTokens int
	Order      Order // "" is NHD
}

// Bounds of a side.
const (
	maxTP         = 1024
	maxPageTokens = 1 << 16
)

// Pool is what a rank of a side stores of one layer.
type Pool struct {
	Heads     int // KV heads on the rank; with MLA 1, the latent vector
	HeadBytes int64
	Parts     int // 2 for keys and values; with MLA 1
	PageBytes int64
}

// Pool is what each rank of a side stores. Heads are split over ranks; if there are fewer
// heads than ranks, an equal number of neighboring ranks stores each head. If neither number
// divides the other it is an error, as in vLLM.
func (s Side) Pool(m Model) (Pool, error) {
	if err := m.check(); err != nil {
		return Pool{}, err
	}
	if s.TP < 1 || s.TP > maxTP || s.PageTokens < 1 || s.PageTokens > maxPageTokens {
		return Pool{}, fmt.Errorf("TP %d with pages of %d tokens: give 1 to %d and 1 to %d", s.TP, s.PageTokens, maxTP, maxPageTokens)
	}
	if s.Order != "" && s.Order != NHD && s.Order != HND {
		return Pool{}, fmt.Errorf("page order %.16q: known are %s and %s", string(s.Order), NHD, HND)
	}
	p := Pool{Heads: 1, HeadBytes: int64(m.LatentDim+m.RopeDim) * int64(m.ElementBytes), Parts: 1}
	if !m.MLA() {
		if m.KVHeads%s.TP != 0 && s.TP%m.KVHeads != 0 {
			return Pool{}, fmt.Errorf("%d KV heads of %s cannot be split over TP %d: one must divide the other", m.KVHeads, m.Name, s.TP)
		}
		p = Pool{Heads: max(1, m.KVHeads/s.TP), HeadBytes: int64(m.HeadDim) * int64(m.ElementBytes), Parts: 2}
	}
	p.PageBytes = int64(p.Parts) * int64(s.PageTokens) * int64(p.Heads) * p.HeadBytes
	return p, nil
}

// Pages is how many pages a prompt of n tokens takes.
func (s Side) Pages(tokens int) int { return (tokens + s.PageTokens - 1) / s.PageTokens }

// RankBytes is the memory that the pages of n tokens take on each rank, all layers together.
func (s Side) RankBytes(m Model, tokens int) (int64, error) {
	p, err := s.Pool(m)
	if err != nil {
		return 0, err
	}
	return int64(s.Pages(tokens)) * p.PageBytes * int64(m.Layers), nil
}

// firstHead is the model's number of the first head of a rank.
func (s Side) firstHead(m Model, rank int) int {
	if m.MLA() {
		return 0
	}
	if s.TP <= m.KVHeads {
		return rank * (m.KVHeads / s.TP)
	}
	return rank / (s.TP / m.KVHeads)
}

// strides are the bytes from one part, token and head to the next within a page.
func (s Side) strides(p Pool) (part, token, head int64) {
	part = int64(s.PageTokens) * int64(p.Heads) * p.HeadBytes
	if s.Order == HND {
		return part, p.HeadBytes, int64(s.PageTokens) * p.HeadBytes
	}
	return part, int64(p.Heads) * p.HeadBytes, p.HeadBytes
}
