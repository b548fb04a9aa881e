// Package longtest says how thorough a test is to be. In an ordinary run (go test ./...) a test
// that goes through very many cases takes a sample of them; .ci/long sets TOPOCTL_TESTS=long, and
// it takes all. Only tests import it.
package longtest

import "os"

// On says whether tests take the time for all of their cases.
func On() bool { return os.Getenv("TOPOCTL_TESTS") == "long" }

// Sample is all cases where tests are long, else at most most of them, evenly spread, the first
// one included.
func Sample[T any](cases []T, most int) []T {
	if On() || len(cases) <= most {
		return cases
	}
	out := make([]T, most)
	for i := range out {
		out[i] = cases[i*len(cases)/most]
	}
	return out
}
