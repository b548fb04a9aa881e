package cli

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

	"github.com/topoctl/topoctl/engine/trust"
)

func TestLoopbackOnly(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:7411": true, "127.9.9.9:1": true, "[::1]:7411": true, "localhost:1": true, "[::ffff:127.0.0.1]:1": true,
		":7411": false, "0.0.0.0:7411": false, "[::]:1": false, "10.0.0.1:1": false, "localhost.example.com:1": false, "": false, "[fe80::1%lo]:1": false,
	} {
		if got := loopbackOnly(address); got != want {
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
	c := Credentials{Files: trust.Files{Token: pipe}}
	_, err := c.Read(t.Context(), &Host{Globals: Globals{Timeout: time.Millisecond}}, nil)
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
	read := func(name string, in io.Reader) (string, error) {
		t.Helper()
		c := Credentials{Files: trust.Files{Token: name}}
		warned.Reset()
		source, err := c.Read(t.Context(), &Host{Streams: Streams{In: in, Err: &warned}}, nil)
		if err != nil {
			return "", err
		}
		return string(source().Shown().Secret), nil
	}
	if got, err := read(file("good", "  "+secret+"\r\n# more\n", 0o600), nil); got != secret || err != nil || warned.Len() > 0 {
		t.Errorf("%q, %v, %q", got, err, warned.String())
	}
	if got, err := read(file("group", secret, 0o440), nil); got != secret || err != nil || warned.Len() > 0 {
		t.Errorf("%q, %v, %q", got, err, warned.String())
	}
	if got, err := read(file("open", secret, 0o644), nil); got != secret || err != nil ||
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
		if _, err := read(path, nil); err == nil || !strings.HasPrefix(err.Error(), "--token-file "+path+": ") || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), secret[1:]) {
			t.Errorf("%s: %v", name, err)
		}
	}
	in := strings.NewReader(secret + "\nthe rest")
	if got, err := read("-", struct{ io.Reader }{in}); got != secret || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if rest, err := io.ReadAll(in); string(rest) != "the rest" || err != nil {
		t.Errorf("left of standard input: %q, %v", rest, err)
	}
	if _, err := read("-", iotest.ErrReader(errors.New("the cable is cut"))); err == nil {
		t.Error("an input that fails is a token")
	}
	var none Credentials
	if got, err := none.Read(t.Context(), &Host{}, nil); got != nil || err != nil {
		t.Errorf("%v, %v", got != nil, err)
	}
}

// Certificates come by three flags, and a token from standard input may be beside them.
func TestReadCertificates(t *testing.T) {
	now := time.Now()
	ca, err := trust.NewCA(trust.Subject{CommonName: "ca", From: now, Until: now.AddDate(1, 0, 0)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := ca.Issue(trust.Subject{DNS: []string{"node1"}, From: now, Until: now.AddDate(1, 0, 0)})
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for name, data := range map[string][]byte{"ca.crt": ca.Certificate, "node1.crt": p.Certificate, "node1.key": p.Key} {
		if err := os.WriteFile(name, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files := trust.Files{Token: "-", Certificate: "node1.crt", Key: "node1.key", CA: "ca.crt"}
	var warned bytes.Buffer
	h := &Host{Streams: Streams{In: strings.NewReader("prefill 0123456789abcdef\n"), Err: &warned}}
	source, err := (&Credentials{files}).Read(t.Context(), h, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c := source(); c.Check() != nil || c.Shown().Name != "prefill" || c.Certificate.Leaf.DNSNames[0] != "node1" {
		t.Errorf("%+v", c)
	}
	if got := warned.String(); !strings.Contains(got, "node1.key can be read or changed by others") || strings.Contains(got, "node1.crt") {
		t.Errorf("%q", got)
	}
	files.Token, files.Key = "", "ca.crt"
	_, err = (&Credentials{files}).Read(t.Context(), h, nil)
	if err == nil || !strings.HasPrefix(err.Error(), "--cert-file node1.crt: with the key of ca.crt: ") || !strings.Contains(Hint(err), "topoctl cert show") {
		t.Errorf("%v, %q", err, Hint(err))
	}
}
