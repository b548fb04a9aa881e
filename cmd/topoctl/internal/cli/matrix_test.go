package cli

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// A matrix that is wider than the terminal is folded, with the rows' names at each part; what goes to a
// file is one table.
func TestMatrixFitsTheTerminal(t *testing.T) {
	for _, args := range []string{"--fixture dgx-h100", "--fixture mi300x-8nic --show expected", "--fixture h20-3e-8gpu-2nic --show nccl --cols gpu,nic,numa"} {
		f := newStreams()
		run := func(width int) (heads string, rows int) {
			f.OutTTY, f.Width = width > 0, width
			runFake(t.Context(), f, append([]string{"matrix", "--no-color", "-q"}, strings.Fields(args)...)...)
			table, _, _ := strings.Cut(f.Stdout.String(), "\nLegend:")
			for line := range strings.Lines(f.Stdout.String()) {
				if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); width > 0 && n > width {
					t.Errorf("%s: %d columns of %d: %s", args, n, width, line)
				}
			}
			for line := range strings.Lines(table) {
				switch {
				case strings.HasPrefix(line, "        "):
					heads += " " + strings.Join(strings.Fields(line), " ")
				case strings.HasPrefix(line, "GPU7 "):
					rows++
				}
			}
			return heads, rows
		}
		want, one := run(0)
		if got, parts := run(80); got != want || one != 1 || parts < 2 {
			t.Errorf("%s: %d tables of a file, %d parts on a terminal with columns%s\nwant%s", args, one, parts, got, want)
		}
	}
}
