package text

// How far a mistyped word is from a known one, and which is nearest.

import "strings"

// Distance is the number of bytes to add, drop or change between two words
// (Levenshtein).
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// Closest finds the candidate that a mistyped name most likely meant, "" where
// none is near: one edit, and one more for each four letters.
func Closest(name string, candidates []string) string {
	if len(name) > 64 { // no one types that
		return ""
	}
	best, bestDistance := "", 2+len(name)/4
	for _, c := range candidates {
		if d := Distance(strings.ToLower(name), strings.ToLower(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}
