package trust

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
)

const (
	secretA = "aaaaaaaaaaaaaaaa"
	secretB = "bbbbbbbbbbbbbbbb"
)

func TestParseTokens(t *testing.T) {
	for text, want := range map[string][]Token{
		"  " + secretA + "\r\n": {{"", []byte(secretA)}},
		secretA:                 {{"", []byte(secretA)}},
		"# who\n\nprefill " + secretA + "\n\t decode-1.lan\t" + secretB + "\n": {{"prefill", []byte(secretA)}, {"decode-1.lan", []byte(secretB)}},
		"a " + secretB + "\na " + secretA + "\n" + secretA:                     {{"a", []byte(secretB)}, {"a", []byte(secretA)}, {"", []byte(secretA)}},
	} {
		if got, err := parseTokens([]byte(text)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"":                                      "the token has 0 bytes, want 16 or more",
		"# only this\n":                         "the token has 0 bytes",
		secretA[1:]:                             "the token has 15 bytes",
		"a " + secretA + "\nb short\n":          "line 2: the token has 5 bytes",
		secretA + " two three":                  "3 words: want a secret, or a name and a secret",
		"b/c " + secretA:                        "the token's name: want up to 64 letters, digits and . _ -",
		"b\x1b[1m " + secretA:                   "the token's name",
		strings.Repeat("n", 65) + " " + secretA: "the token's name",
		strings.Repeat("x", 5000):               "longer than 4096 bytes",
		strings.Repeat(secretA+"\n", 65):        "line 65: more than 64 tokens",
	} {
		got, err := parseTokens([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %q, %v, want %q", text, got, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), secretA[1:]) || strings.Contains(err.Error(), "\x1b")) {
			t.Errorf("%.20q: the error shows it: %v", text, err)
		}
	}
}

func TestReadToken(t *testing.T) {
	in := strings.NewReader("a " + secretA + "\nthe rest")
	if got, err := ReadToken(struct{ io.Reader }{in}); got.Name != "a" || string(got.Secret) != secretA || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if rest, err := io.ReadAll(in); string(rest) != "the rest" || err != nil {
		t.Errorf("left: %q, %v", rest, err)
	}
	for _, in := range []io.Reader{strings.NewReader(""), strings.NewReader(strings.Repeat("x", 5000)), iotest.ErrReader(errors.New("the cable is cut"))} {
		if got, err := ReadToken(in); err == nil {
			t.Errorf("%q", got)
		}
	}
}

// folder writes files and names them.
type folder struct {
	t   *testing.T
	dir string
}

func (f folder) write(name string, data []byte) string {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// files writes those of a host.
func (f folder) files(ca Pair, tokens, name string) Files {
	f.t.Helper()
	p, err := ca.Issue(host(name))
	if err != nil {
		f.t.Fatal(err)
	}
	return Files{
		Token: f.write("token", []byte(tokens)), Certificate: f.write("host.crt", p.Certificate),
		Key: f.write("host.key", p.Key), CA: f.write("ca.crt", ca.Certificate),
	}
}

func TestFilesThatAreWrong(t *testing.T) {
	ca := authority(t, "ca")
	f := folder{t, t.TempDir()}
	good := f.files(ca, secretA, "node1")
	if c, err := good.Read(); err != nil || string(c.Shown().Secret) != secretA || c.Certificate.Leaf.DNSNames[0] != "node1" || c.Roots == nil {
		t.Fatalf("%v, %v", c, err)
	}
	if c, err := (Files{}).Read(); err != nil || !c.None() {
		t.Errorf("no files: %v, %v", c, err)
	}
	other := folder{t, t.TempDir()}.files(ca, secretB, "node2")
	begun := authority(t, "another ca").Certificate[:200]
	chain, err := os.ReadFile(good.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	cutChain, cutCAs := f.write("cut.crt", append(chain, begun...)), f.write("cut-ca.crt", append(bytes.Clone(ca.Certificate), begun...))
	for want, change := range map[string]func(*Files){
		"come together":                             func(f *Files) { f.CA = "" },
		"come together: one":                        func(f *Files) { f.Key = "" },
		"come together: one of":                     func(f *Files) { f.Certificate = "" },
		"token file " + f.dir + ": is a directory":  func(x *Files) { x.Token = f.dir },
		"key file " + f.dir + "/none: no such file": func(x *Files) { x.Key = filepath.Join(f.dir, "none") },
		"private key does not match public key":     func(x *Files) { x.Key = other.Key },
		"cert file " + good.Key + ": with the key":  func(x *Files) { x.Certificate = good.Key },
		"cert file " + cutChain + ": of its certificates (PEM), 1 of 2 cannot be read": func(x *Files) { x.Certificate = cutChain },
		"ca file " + cutCAs + ": of its certificates (PEM), 1 of 2 cannot be read":     func(x *Files) { x.CA = cutCAs },
		"ca file " + good.Certificate + ": the certificate for node1 is not a CA's":    func(x *Files) { x.CA = good.Certificate },
		"ca file " + good.Token + ": no certificate in it":                             func(x *Files) { x.CA = good.Token },
		"token file " + good.CA + ": line 1: the token's name":                         func(x *Files) { x.Token = good.CA },
	} {
		x := good
		change(&x)
		_, err := x.Read()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := (Files{Token: good.Token + "x"}).Read(); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestWatch: files that were replaced count from a second later on; broken ones never.
func TestWatch(t *testing.T) {
	ca := authority(t, "ca")
	f := folder{t, t.TempDir()}
	files := f.files(ca, "old "+secretA, "node1")
	now := noon
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	source, err := files.watch(log, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	first := source()
	// expect says what the credentials are after a second, and that this was logged.
	expect := func(step, token, name, logged string) *Credentials {
		t.Helper()
		said.Reset()
		now = now.Add(recheck)
		c := source()
		if c.Shown().Name != token || c.Certificate.Leaf.DNSNames[0] != name {
			t.Errorf("%s: %q, %q", step, c.Shown().Name, c.Certificate.Leaf.DNSNames)
		}
		if got := said.String(); (logged == "") != (got == "") || !strings.Contains(got, logged) || strings.Contains(got, secretA) || strings.Contains(got, secretB) {
			t.Errorf("%s: logged %q, want %q", step, got, logged)
		}
		return c
	}
	if expect("nothing changed", "old", "node1", "") != first {
		t.Error("the same files are other credentials")
	}
	f.write("token", []byte("new "+secretB+"\nold "+secretA))
	if now = now.Add(recheck / 2); source() != first {
		t.Error("the files are looked at again at once")
	}
	c := expect("a new token", "new", "node1", `tokens="[new old]"`)
	if first.Shown().Name != "old" || len(c.Tokens) != 2 {
		t.Error("credentials that were given out have changed")
	}
	f.write("token", []byte("short"))
	expect("a broken token", "new", "node1", "the token has 5 bytes")
	expect("the same broken token", "new", "node1", "")
	if err := os.Remove(files.Token); err != nil {
		t.Fatal(err)
	}
	expect("no file", "new", "node1", "no such file")
	f.write("token", []byte("newer "+secretB))
	expect("a good one again", "newer", "node1", "credentials were read again")

	p, err := ca.Issue(host("node1b"))
	if err != nil {
		t.Fatal(err)
	}
	f.write("host.crt", p.Certificate)
	expect("a certificate without its key", "newer", "node1", "private key does not match")
	f.write("host.key", p.Key)
	expect("its key", "newer", "node1b", `certificate="for node1b" valid_to=2026-06-16T12:00:00Z`)
	f.write("ca.crt", []byte("nothing"))
	expect("no CA", "newer", "node1b", "no certificate in it")
	if err := errors.Join(os.Remove(files.Token), syscall.Mkfifo(files.Token, 0o600)); err != nil {
		t.Fatal(err)
	}
	expect("a pipe in the place of a file", "newer", "node1b", "is none any more")
}

func TestExposed(t *testing.T) {
	path := folder{t, t.TempDir()}.write("token", nil)
	for mode, want := range map[fs.FileMode]bool{0o600: false, 0o440: false, 0o644: true, 0o620: true} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if got, exposed := Exposed(path); exposed != want || want && got != mode {
			t.Errorf("%v: %v, %v", mode, got, exposed)
		}
	}
	if _, exposed := Exposed(path + "x"); exposed {
		t.Error("no file is exposed")
	}
}

// A token that is printed or logged does not show its secret.
func TestTokenPrintsNoSecret(t *testing.T) {
	token := Token{Name: "blue", Secret: []byte("0123456789abcdef")}
	list := Credentials{Tokens: []Token{token}}
	for _, text := range []string{
		fmt.Sprint(token), fmt.Sprintf("%+v", token), fmt.Sprintf("%#v", token), fmt.Sprintf("%x", token), fmt.Sprintf("%d", &token),
		fmt.Sprintf("%+v", list), fmt.Sprintf("%#v", &list),
	} {
		if !strings.Contains(text, `token "blue" with a secret of 16 bytes`) {
			t.Error(text)
		}
	}
}
