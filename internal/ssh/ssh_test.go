package ssh

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// The words reach the command as they are, whatever the shell there makes of them.
func TestArguments(t *testing.T) {
	words := []string{"printf", "%s\\n", "it's", "$HOME", "a b", ""}
	args := Program{ConnectTime: 3 * time.Second}.Arguments("n1", words)
	if want := []string{"-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=3", "--", "n1"}; !slices.Equal(args[:len(args)-1], want) {
		t.Errorf("%q", args)
	}
	out, err := exec.Command("sh", "-c", args[len(args)-1]).Output()
	if err != nil || string(out) != "it's\n$HOME\na b\n\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestCheckHost(t *testing.T) {
	for host, ok := range map[string]bool{"n1": true, "10.0.0.1": true, "fd00::1": true, "n1.cluster": true, "-oProxyCommand=x": false, "": false, "a b": false, "u@h": false, ".x": false} {
		if err := CheckHost(host); (err == nil) != ok {
			t.Errorf("%q: %v", host, err)
		}
	}
}

func TestTail(t *testing.T) {
	tail := &Tail{}
	if tail.Suffix() != "" {
		t.Error("nothing was said")
	}
	for range 100 {
		_, _ = tail.Write([]byte(strings.Repeat("x", 100)))
	}
	_, _ = tail.Write([]byte("\nAuthorized use only\n \n\x1b[2J\nPermission\ndenied\n"))
	if s := tail.Suffix(); len(s) > tailBytes+10 || s != `: \x1b[2J; Permission; denied` {
		t.Errorf("%q", s)
	}
}
