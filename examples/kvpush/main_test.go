package main

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/topoctl/topoctl/examples/internal/secret"
)

// output is a buffer that both roles can write to.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func TestRun(t *testing.T) {
	var out output
	if err := run(t.Context(), []string{"-layers", "4", "-pages", "20"}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"decode listens at 127.0.0.1:", "layer 3 with peer 127.0.0.1:", "prefill pushed 1 MB in ", "decode has 4 layers of 20 pages"} {
		if !strings.Contains(out.b.String(), want) {
			t.Errorf("no %q in\n%s", want, out.b.String())
		}
	}
	for _, args := range [][]string{{"-layers", "0"}, {"-pages", "513"}, {"-token-file", "nowhere"}} {
		if err := run(t.Context(), args, &out); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
	t.Setenv(secret.Variable, "short")
	if err := run(t.Context(), nil, &out); err == nil || !strings.Contains(err.Error(), "5 bytes, want 16") {
		t.Errorf("a short token: %v", err)
	}
}
