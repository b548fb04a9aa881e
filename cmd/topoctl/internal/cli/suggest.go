package cli

import "strings"

// closest finds the candidate that a mistyped name most likely meant, "" where
// none is near: one edit, and one more for each four letters.
func closest(name string, candidates []string) string {
	if len(name) > 64 { // nobody types that
		return ""
	}
	best, bestDistance := "", 2+len(name)/4
	for _, c := range candidates {
		if d := distance(strings.ToLower(name), strings.ToLower(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance is the number of single-character edits between two names
// (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
