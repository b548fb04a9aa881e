package judge_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/internal/probe/show"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/internal/judge"
	"github.com/topoctl/topoctl/testkit/golden"
)

// Reports of runs in test/probelab (TOPOCTL_PROBE_RECORD=DIR keeps them), judged anew: what the rules say of
// four hosts with a cable at a fifth or without, beside busy loops or not, on machines that others load. The
// file's name says which port was slow.
func TestRecorded(t *testing.T) {
	files, err := filepath.Glob("testdata/recorded/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no reports", err)
	}
	var out strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r, err := probe.Decode(data)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for i := range r.Results {
			x := &r.Results[i]
			x.Verdict, x.Reasons, x.Efficiency, x.OfBest = "", nil, nil, nil
		}
		r.Blame = nil
		judge.Judge(r)
		answer := show.Answer(r, show.Options{})
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		fmt.Fprintf(&out, "%s\n  %s\n", name, answer)
		for i := range r.Blame {
			fmt.Fprintf(&out, "  %s\n", show.BlameTitle(&r.Blame[i], r, show.Options{}))
		}
		_, slow, bad := strings.Cut(name, "-slow-")
		host, port, _ := strings.Cut(slow, "-")
		switch {
		case !bad && len(r.Blame) > 0:
			t.Errorf("%s: all cables are well, and %s", name, answer)
		case bad && (len(r.Blame) != 1 || !strings.HasPrefix(answer, "1 slow port: "+host+"/"+port+" ")):
			t.Errorf("%s: %s", name, answer)
		}
	}
	golden.Check(t, "testdata/recorded/answers.txt", []byte(out.String()))
}
