package command

import (
	"strings"

	"github.com/topoctl/topoctl/internal/base/edit"
)

// Closest finds the candidate that a mistyped name most likely meant, "" where
// none is near: one edit, and one more for each four letters.
func Closest(name string, candidates []string) string {
	if len(name) > 64 { // nobody types that
		return ""
	}
	best, bestDistance := "", 2+len(name)/4
	for _, c := range candidates {
		if d := edit.Distance(strings.ToLower(name), strings.ToLower(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}
