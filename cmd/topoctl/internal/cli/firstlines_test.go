package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
)

// The first line of an answer is the answer: of each command on each machine, to be read alone.
func TestFirstLines(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: slow")
	}
	dir := t.TempDir()
	names := fixtures.Names()
	file := func(name string) string { return filepath.Join(dir, name) }
	where := map[string]string{} // a location of each machine that data leaves from
	for _, name := range names {
		top := fixturetest.Topology(t, name)
		data, err := top.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file(name), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if where[name] = "cpu:0"; len(top.GPUs) > 0 {
			where[name] = "gpu:0"
		}
	}
	answer := func(name, args string) []string {
		f := newStreams()
		runFake(t.Context(), f, strings.Fields(args)...)
		text := f.Stdout.String() + f.Stderr.String() // without an answer it says why
		first, _, _ := strings.Cut(text, "\n")
		plain := strings.NewReplacer(dir+"/", "", " --from "+file(name), "")
		return []string{name, plain.Replace(args), plain.Replace(first)}
	}
	of := make([][][]string, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		near := names[(i+1)%len(names)]
		all.Go(func() {
			for _, args := range []string{
				"doctor --from " + file(name),
				"path " + where[name] + " --from " + file(name),
				"path " + where[name] + " --from " + file(name) + " -q --peer " + file(near),
				"path --plan --from " + file(name),
				"diff " + file(name) + " " + file(name),
				"diff " + file(name) + " " + file(near),
			} {
				of[i] = append(of[i], answer(name, args))
			}
		})
	}
	all.Wait()
	rows := slices.Concat(of...)
	for _, name := range []string{"a10-2nic", "dgx-h100"} {
		for _, load := range []string{"", " --rate 0.5", " --rate 50", " --input-len 64000"} {
			rows = append(rows, answer(name, "kv predict --model qwen2.5-7b --gpu a10 --requests 20 --host p="+file(name)+" --host d="+file(name)+load))
		}
	}
	golden.Check(t, filepath.Join("testdata", "first-lines.golden"), fmt.Sprintln(strings.Join(text.Columns(rows), "\n")))
}
