package main_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/internal/app/cli"
)

// What README shows is what the program prints. "..." at the end of a
// command's output stands for what is left out.
func TestReadmeShowsRealOutput(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for i, block := range strings.Split(string(readme), "```\n") {
		if i%2 == 0 {
			continue // text between blocks
		}
		for part := range strings.SplitSeq("\n"+block, "\n$ ") {
			command, want, _ := strings.Cut(part, "\n")
			args, ok := strings.CutPrefix(command, "topoctl ")
			if !ok {
				continue
			}
			shown++
			args, pattern, _ := strings.Cut(args, " | grep ")
			got := printed(t, strings.Fields(args)...)
			if pattern != "" {
				got = linesWith(got, strings.Trim(pattern, "'"))
			}
			if prefix, cut := strings.CutSuffix(strings.TrimRight(want, "\n"), "..."); cut && len(prefix) <= len(got) {
				want, got = prefix, got[:len(prefix)]
			}
			if diff := cmp.Diff(strings.TrimRight(want, "\n"), strings.TrimRight(got, "\n")); diff != "" {
				t.Errorf("$ %s (-README +program)\n%s", command, diff)
			}
		}
	}
	if shown < 3 {
		t.Errorf("README shows %d commands", shown)
	}
}

// printed is what a command prints, also where its answer is bad (exit code 1).
func printed(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	streams := cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs, Getenv: func(string) string { return "" }}
	if code := cli.Main(t.Context(), args, streams, nil, nil); code == 2 {
		t.Fatalf("topoctl %s: exit code %d: %s", strings.Join(args, " "), code, errs.String())
	}
	return out.String()
}

func linesWith(text, pattern string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, pattern) {
			out.WriteString(line)
		}
	}
	return out.String()
}
