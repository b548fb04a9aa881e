package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/internal/agent"
)

// The metrics that examples/kubernetes alerts on are those that topoctl writes, with the labels that
// the alerts select by: an expression with a misspelt name is valid, and never fires.
func TestAlertsNameOurMetrics(t *testing.T) {
	rules, err := os.ReadFile("../../examples/kubernetes/components/monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	written, err := exec.Command("topoctl", "export", "prometheus", "--fixture", "dgx-h100-port-down").Output()
	if err != nil {
		t.Fatal(err)
	}
	text := string(written) + engineMetrics(t)
	names := 0
	for _, expr := range regexp.MustCompile(`(?m)^ *expr: (.*)$`).FindAllStringSubmatch(string(rules), -1) {
		for _, m := range regexp.MustCompile(`(topoctl_\w+)(?:\{([^}]*)\})?`).FindAllStringSubmatch(expr[1], -1) {
			names++
			samples := regexp.MustCompile(`(?m)^`+m[1]+`[ {].*$`).FindAllString(text, -1)
			if len(samples) == 0 {
				t.Errorf("nothing writes %s: %s", m[1], expr[1])
			}
			for _, label := range regexp.MustCompile(`(\w+)(!?)=(~?)"([^"]*)"`).FindAllStringSubmatch(m[2], -1) {
				values, err := regexp.Compile(label[1] + `="(?:` + label[4] + `)"`)
				if err != nil {
					t.Fatal(err)
				}
				found := false
				for _, s := range samples {
					found = found || values.MatchString(s)
				}
				// What an alert leaves out need not be on this machine.
				if !found && label[2] == "" {
					t.Errorf("no %s has %s: %s", m[1], label[0], expr[1])
				}
			}
		}
	}
	if names < 8 {
		t.Errorf("the alerts name %d metrics", names)
	}
}

// engineMetrics are those of an engine that has a peer and has moved something to it.
func engineMetrics(t *testing.T) string {
	t.Helper()
	ctx := t.Context()
	options := engine.Options{Listen: []string{"127.0.0.1:0"}, Security: engine.Security{Credentials: trust.Secret([]byte("0123456789abcdef"))}}
	started := func(name string) *engine.Engine {
		o := options
		o.Name = name
		e, err := engine.New(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	}
	a, b := started("a"), started("b")
	from, err := a.Alloc(4096, engine.RegionOptions{Name: "from"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Alloc(4096, engine.RegionOptions{Name: "kv", Grant: memory.PeerWrite}); err != nil {
		t.Fatal(err)
	}
	p, err := a.Open(ctx, b.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	to, err := p.Region(ctx, "kv")
	if err != nil {
		t.Fatal(err)
	}
	batch, err := p.Submit(ctx, []engine.Op{engine.WriteOp(from.Span(0, 4096), to.At(0))}, engine.SubmitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := batch.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	pages, err := agent.ServePages(ctx, []string{"127.0.0.1:0"}, a, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer pages.Stop(context.WithoutCancel(ctx))
	answer, err := http.Get("http://" + pages.Addresses()[0] + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
