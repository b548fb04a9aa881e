package collect_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/internal/fleet/collect"
)

// program puts a script in the place of a program.
func program(t *testing.T, name, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

func TestAsk(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := collect.IBNetDiscover(t.Context()); err == nil || !strings.Contains(err.Error(), "not installed here") {
		t.Errorf("none: %v", err)
	}
	program(t, "ibnetdiscover", "echo found; seq -f 'ibwarn: %g' 2000 >&2")
	if out, err := collect.IBNetDiscover(t.Context()); err != nil || string(out) != "found\n" {
		t.Errorf("%q %v", out, err)
	}
	program(t, "ibnetdiscover", "echo 'cannot open umad' >&2; exit 1")
	if _, err := collect.IBNetDiscover(t.Context()); err == nil || !strings.Contains(err.Error(), "exit status 1: cannot open umad") {
		t.Errorf("fails: %v", err)
	}
	program(t, "lldpcli", `echo "{\"$4\": 1}"`)
	if out, err := collect.LLDP(t.Context()); err != nil || string(out) != "{\"neighbors\": 1}\n\n{\"chassis\": 1}\n" {
		t.Errorf("%q %v", out, err)
	}
	program(t, "ibnetdiscover", "exec sleep 1000")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := collect.IBNetDiscover(ctx); err == nil {
		t.Error("a program that hangs was waited for")
	}
}
