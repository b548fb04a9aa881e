package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/watch"
)

// Nothing that a host or an agent says reaches the terminal as it is, and long details are
// cut.
func TestWatchText(t *testing.T) {
	f := newStreams()
	when := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := watchPrinter{o: &watchOptions{Host: &Host{Streams: f.Streams, Now: func() time.Time { return when }, Format: formatTable}}}
	e := watch.Event{Kind: watch.SourceLost, Severity: "warning", Source: "agent \x1b[2J", Text: "a\rb\n", Code: "c\x07"}
	many := watch.Event{Kind: watch.Finding, Severity: "odd", Subject: "net:a", Subjects: []topo.ID{"net:a", "net:\u202eb", "port:x/1", "gpu:0", "gpu:1"}, Text: "t",
		Detail: strings.Split("1 2 3 4 5 6 7 8", " ")}
	if err := p.print([]watch.Event{e, many}); err != nil {
		t.Fatal(err)
	}
	want := `03:04:05 WARN source-lost c\a  agent \x1b[2J: a\rb\n
03:04:05  finding  a, \u202eb, x and 2 more: t
              1
              2
              3
              4
              5
              6
              and 2 more (-o jsonl has them)
`
	if f.Stdout.String() != want {
		t.Errorf("got\n%s\nwant\n%s", f.Stdout.String(), want)
	}
}
