package cli

import (
	"strings"
	"testing"

	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/text"
)

// The summary of every machine leaves room on the smallest terminal, where its commands take a line each.
func TestSummaryFitsTheScreen(t *testing.T) {
	const columns, lines = 80, 16
	f := newStreams()
	f.Width, f.OutTTY = columns, true
	for _, name := range fixtures.Names() {
		runFake(t.Context(), f, "--fixture", name, "--color", "never")
		got := strings.Split(strings.TrimSuffix(f.Stdout.String(), "\n"), "\n")
		if len(got) < 7 || len(got) > lines {
			t.Errorf("%s: %d lines:\n%s", name, len(got), f.Stdout.String())
			continue
		}
		for _, line := range got {
			if text.Width(line) > columns {
				t.Errorf("%s: %q has more than %d columns", name, line, columns)
			}
		}
		if !strings.HasPrefix(got[len(got)-3], "  topoctl ") || !strings.HasPrefix(got[len(got)-2], "  topoctl ") {
			t.Errorf("%s: not a line for each command:\n%s", name, f.Stdout.String())
		}
	}
}
