package peers

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/topoctl/topoctl/internal/app/cli/command"
)

func TestLoopbackOnly(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:7411": true, "127.9.9.9:1": true, "[::1]:7411": true, "localhost:1": true, "[::ffff:127.0.0.1]:1": true,
		":7411": false, "0.0.0.0:7411": false, "[::]:1": false, "10.0.0.1:1": false, "localhost.example.com:1": false, "": false, "[fe80::1%lo]:1": false,
	} {
		if got := LoopbackOnly(address); got != want {
			t.Errorf("%q: %v", address, got)
		}
	}
}

// A named pipe that no one writes to does not hold a command for ever.
func TestTokenTimeout(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	token := Token{File: pipe}
	_, err := token.Read(t.Context(), &command.Host{Globals: command.Globals{Timeout: time.Millisecond}})
	if err == nil || !strings.Contains(err.Error(), pipe+": could not be read within 1ms") {
		t.Errorf("%v", err)
	}
}

func TestReadToken(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const secret = "0123456789abcdef"
	var warned bytes.Buffer
	if got, err := ReadToken(file("good", "  "+secret+"\r\nmore\n", 0o600), nil, &warned); string(got) != secret || err != nil || warned.Len() > 0 {
		t.Errorf("%q, %v, %q", got, err, warned.String())
	}
	if got, err := ReadToken(file("open", secret, 0o644), nil, &warned); string(got) != secret || err != nil ||
		!strings.HasSuffix(warned.String(), "can be read or changed by others (mode 0644): chmod 600 "+filepath.Join(dir, "open")+"\n") {
		t.Errorf("%q, %v, %q", got, err, warned.String())
	}
	for name, path := range map[string]string{
		"the token has 15 bytes, want 16 or more": file("short", secret[1:]+"\n", 0o600),
		"the token has 0 bytes":                   file("empty", "", 0o600),
		"longer than 4096 bytes":                  file("long", strings.Repeat("x", 5000), 0o600),
		"no such file":                            filepath.Join(dir, "none"),
		"is a directory":                          dir,
	} {
		if _, err := ReadToken(path, nil, io.Discard); err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), secret[1:]) {
			t.Errorf("%s: %v", name, err)
		}
	}
	in := strings.NewReader(secret + "\nthe rest")
	if got, err := ReadToken("-", struct{ io.Reader }{in}, nil); string(got) != secret || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if rest, err := io.ReadAll(in); string(rest) != "the rest" || err != nil {
		t.Errorf("left of standard input: %q, %v", rest, err)
	}
	if _, err := ReadToken("-", iotest.ErrReader(errors.New("the cable is cut")), nil); err == nil {
		t.Error("an input that fails is a token")
	}
	if got, err := ReadToken("", nil, nil); got != nil || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
