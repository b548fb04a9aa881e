package serve

import (
	"errors"
	"fmt"
	"math"
)

// x are a row's factors of A, B and C, or of D, E and F.
func (r Row) x() [3]float64 {
	if r.Tokens > 0 {
		return [3]float64{1, r.Tokens, r.Tokens * r.Tokens}
	}
	return [3]float64{1, r.Batch, r.ContextTokens}
}

// gain is how much smaller the root mean square error has to be before another term is
// believed: rows are noisy, and where they tell nothing of a term it is 0.
const gain = 0.8

// Prefill always costs something for each token, decode something for each step.
var (
	prefillTerms = [][]int{{1}, {0, 1}, {1, 2}, {0, 1, 2}}
	decodeTerms  = [][]int{{0}, {0, 1}, {0, 2}, {0, 1, 2}}
)

// Fit finds the three parameters, in ns and none below 0, with the least squares of relative
// errors over rows, and each row's own (modelled/published - 1). It takes the fewest terms
// unless more leave a clearly smaller error. Rows are all of
// prefill (Tokens) or all of decode (Batch).
func Fit(rows []Row) (parameters [3]float64, residuals []float64, err error) {
	if len(rows) == 0 {
		return parameters, nil, errors.New("fit: no rows")
	}
	for i, r := range rows {
		if !(r.MS > 0) || !(r.Tokens > 0) && !(r.Batch > 0) || (r.Tokens > 0) != (rows[0].Tokens > 0) || math.IsInf(r.MS+r.Tokens+r.Batch+r.ContextTokens, 0) {
			return parameters, nil, fmt.Errorf("fit: row %d is not a time of the same phase as the others", i)
		}
	}
	best := math.Inf(1)
	choices := decodeTerms
	if rows[0].Tokens > 0 {
		choices = prefillTerms
	}
	for _, terms := range choices {
		if len(terms) > len(rows) {
			break
		}
		p, ok := solve(rows, terms)
		if !ok {
			continue
		}
		if e := rms(rows, p); e < best*gain-exact {
			best, parameters = e, p
		}
	}
	if math.IsInf(best, 1) {
		return parameters, nil, errors.New("fit: no parameters of 0 or more explain the rows")
	}
	for _, r := range rows {
		residuals = append(residuals, model(r, parameters)/(r.MS*1e6)-1)
	}
	return parameters, residuals, nil
}

// exact is an error that no other terms can make smaller.
const exact = 1e-9

func model(r Row, p [3]float64) (ns float64) {
	for i, x := range r.x() {
		ns += p[i] * x
	}
	return ns
}

func rms(rows []Row, p [3]float64) float64 {
	var sum float64
	for _, r := range rows {
		e := model(r, p)/(r.MS*1e6) - 1
		sum += e * e
	}
	return math.Sqrt(sum / float64(len(rows)))
}

// solve finds the parameters of some terms, others being 0, by normal equations. Rows are
// divided by their times, columns by their lengths. ok is false where they do not decide or
// a parameter would be below 0.
func solve(rows []Row, terms []int) (p [3]float64, ok bool) {
	n := len(terms)
	var scale [3]float64
	for i, term := range terms {
		for _, r := range rows {
			v := r.x()[term] / (r.MS * 1e6)
			scale[i] += v * v
		}
		if scale[i] = math.Sqrt(scale[i]); scale[i] == 0 {
			return p, false
		}
	}
	var m [3][4]float64
	for _, r := range rows {
		var x [3]float64
		for i, term := range terms {
			x[i] = r.x()[term] / (r.MS * 1e6) / scale[i]
		}
		for i := range n {
			for j := range n {
				m[i][j] += x[i] * x[j]
			}
			m[i][3] += x[i]
		}
	}
	if !eliminate(&m, n) {
		return p, false
	}
	for i, term := range terms {
		if p[term] = m[i][3] / scale[i]; p[term] < 0 {
			return p, false
		}
	}
	return p, true
}

// eliminate solves n equations in place, by Gauss and Jordan with the largest pivot; the
// right side is column 3. It says whether they are independent.
func eliminate(m *[3][4]float64, n int) bool {
	for c := range n {
		pivot := c
		for r := c + 1; r < n; r++ {
			if math.Abs(m[r][c]) > math.Abs(m[pivot][c]) {
				pivot = r
			}
		}
		m[c], m[pivot] = m[pivot], m[c]
		if math.Abs(m[c][c]) < exact {
			return false
		}
		for r := range n {
			if r == c {
				continue
			}
			f := m[r][c] / m[c][c]
			for k := c; k < 4; k++ {
				m[r][k] -= f * m[c][k]
			}
		}
	}
	for c := range n {
		m[c][3] /= m[c][c]
	}
	return true
}
