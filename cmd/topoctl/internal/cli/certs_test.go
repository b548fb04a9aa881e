package cli

import (
	"encoding/json"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/trust"
)

var certNoon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// runCertAt runs a command at a time.
func runCertAt(t *testing.T, now time.Time, args string) (code int, out, errs string) {
	t.Helper()
	f := newStreams()
	env := &Env{Streams: f.Streams, Now: func() time.Time { return now }}
	code = Run(t.Context(), env, strings.Fields(args), commands(env)...)
	return code, f.Stdout.String(), f.Stderr.String()
}

// must runs a command that succeeds.
func must(t *testing.T, args, want string) {
	t.Helper()
	if code, out, errs := runCertAt(t, certNoon, args); code != 0 || !strings.HasPrefix(out, want) {
		t.Fatalf("%s: code %d, %q, %s", args, code, out, errs)
	}
}

func TestMake(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, "cert ca", "ca.crt is a new CA, valid until 2036-05-29.\n")
	must(t, "cert host node1 --dns node1.lan,node1.ib --ip 10.0.0.1 --ip fe80::1 --uri spiffe://cluster/node1",
		"node1.crt is for spiffe://cluster/node1, node1, node1.lan, node1.ib, 10.0.0.1, fe80::1, valid until 2027-06-01.\n  use: --cert-file node1.crt --key-file node1.key --ca-file ca.crt\n")
	must(t, "cert host 10.0.0.2 --days 36500", "10.0.0.2.crt is for 10.0.0.2, valid until 2036-05-29 (when the CA's certificate expires).\n")
	for name, want := range map[string]fs.FileMode{"ca.key": 0o600, "node1.key": 0o600, "ca.crt": 0o644, "node1.crt": 0o644} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
	files := trust.Files{Certificate: "node1.crt", Key: "node1.key", CA: "ca.crt"}
	before, err := files.Read()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"cert ca", "cert host node1", "cert host 10.0.0.2"} {
		if code, _, errs := runCertAt(t, certNoon, args); code != exitFailed || !strings.Contains(errs, " exists\nhint: use --force") {
			t.Errorf("%s: code %d, %s", args, code, errs)
		}
	}
	if err := os.Remove("node1.key"); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := runCertAt(t, certNoon, "cert host node1"); code != exitFailed || !strings.Contains(errs, "node1.crt exists") {
		t.Errorf("code %d, %s", code, errs)
	}
	if _, err := os.Stat("node1.key"); err == nil {
		t.Error("a key without its certificate is left")
	}
	must(t, "cert host node1 --force", "node1.crt is for node1, valid until")
	if after, err := files.Read(); err != nil || after.Certificate.Leaf.Equal(before.Certificate.Leaf) {
		t.Errorf("it was not replaced: %v", err)
	}
	if info, err := os.Stat("node1.key"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestMakeRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, "cert ca", "ca.crt")
	if err := os.Mkdir("other", 0o700); err != nil {
		t.Fatal(err)
	}
	must(t, "cert ca --dir other", "other/ca.crt")
	if code, _, errs := runCertAt(t, certNoon, "cert host node1 --ca-key other/ca.key"); code != exitFailed || !strings.Contains(errs, "ca.crt with other/ca.key: tls: private key does not match") {
		t.Errorf("code %d, %s", code, errs)
	}
	must(t, "cert host node1", "node1.crt")
	if code, _, errs := runCertAt(t, certNoon, "cert host node2 --ca node1.crt --ca-key node1.key"); code != exitFailed || !strings.Contains(errs, "not a CA's") {
		t.Errorf("code %d, %s", code, errs)
	}
	if code, _, errs := runCertAt(t, certNoon.AddDate(11, 0, 0), "cert host node2"); code != exitFailed || !strings.Contains(errs, "renew the CA") {
		t.Errorf("code %d, %s", code, errs)
	}
}

func TestShow(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("other", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"cert ca --name ours", "cert ca --dir other --name theirs", "cert host node1 --dns node1.lan", "cert host node2"} {
		must(t, args, "")
	}
	web, err := trust.NewCA(trust.Subject{CommonName: "a CA that signed nothing", From: certNoon, Until: certNoon.AddDate(1, 0, 0)})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("web.crt", web.Certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args  string
		years int
		days  int
		code  int
		want  string
	}{
		{"node1.crt", 0, 0, 0, "node1.crt is valid for node1 and node1.lan until 2027-06-01 (365 days).\n\n  subject    CN=node1\n  names      node1, node1.lan\n  for        servers and clients\n" +
			"  valid      2026-06-01T11:00:00Z to 2027-06-01T12:00:00Z\n  signed by  CN=ours\n  key        ECDSA P-256\n  SHA-256    "},
		{"ca.crt", 0, 0, 0, "ca.crt is valid as a CA until 2036-05-29 (3650 days).\n"},
		{"node1.crt", 1, -10, 0, "node1.crt is valid for node1 and node1.lan, but only until 2027-06-01 (10 days): renew it.\n"},
		{"node1.crt", 1, 3, 1, "node1.crt cannot be used: it has expired, 3 days ago: renew it.\n"},
		{"node1.crt --ca-file ca.crt", 1, 3, 1, "node1.crt cannot be used: it has expired, 3 days ago: renew it.\n"},
		{"node1.crt --ca-file ca.crt", 20, 0, 1, "node1.crt cannot be used: it has expired, 6940 days ago: renew it.\n"},
		{"node1.crt", 0, -1, 1, "node1.crt cannot be used: it is not valid before 2026-06-01T11:00:00Z: compare the clocks.\n"},
		{"node1.crt --ca-file ca.crt --key-file node1.key", 0, 0, 0, "node1.crt is valid for node1"},
		{"node1.crt --ca-file other/ca.crt", 0, 0, 1, "node1.crt cannot be used: the CAs of other/ca.crt: none of them has signed it.\n"},
		{"node1.crt --key-file node2.key", 0, 0, 1, "node1.crt cannot be used: node2.key is not its key (tls: private key does not match public key).\n"},
		{"web.crt --ca-file ca.crt", 0, 0, 1, "web.crt cannot be used: the CAs of ca.crt: none of them has signed it.\n"},
		{"node1.key", 0, 0, 2, ""},
	} {
		code, out, errs := runCertAt(t, certNoon.AddDate(c.years, 0, c.days), "cert show "+c.args)
		if code != c.code || !strings.HasPrefix(out, c.want) {
			t.Errorf("%s: code %d, %q, %s", c.args, code, out, errs)
		}
		if c.code == 2 && !strings.Contains(errs, "node1.key: no certificate in it") {
			t.Errorf("%s: %s", c.args, errs)
		}
	}
	code, out, errs := runCertAt(t, certNoon, "cert show node1.crt --ca-file other/ca.crt -o json")
	var doc certDocument
	if err := json.Unmarshal([]byte(out), &doc); err != nil || code != 1 {
		t.Fatalf("code %d, %v, %s", code, err, errs)
	}
	if doc.Schema != certSchema || doc.Usable || len(doc.Problems) != 1 || len(doc.Certificates) != 1 || doc.Certificates[0].ValidUntil != "2027-06-01T12:00:00Z" ||
		!doc.Certificates[0].Server || !doc.Certificates[0].Client || doc.Certificates[0].CA || len(doc.Certificates[0].Fingerprint) != 64 {
		t.Errorf("%+v", doc)
	}
}

// TestJudge is about certificates that other CAs make.
func TestJudge(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, "cert ca", "")
	must(t, "cert host node1", "")
	list, _, err := readCertificates("node1.crt")
	if err != nil {
		t.Fatal(err)
	}
	c := *list[0]
	c.DNSNames, c.ExtKeyUsage = nil, c.ExtKeyUsage[:1]
	if got := strings.Join(judgeCertificate(&c, certNoon), "\n"); !strings.Contains(got, "names no host") || !strings.Contains(got, "not for clients") || strings.Contains(got, "not for servers") {
		t.Error(got)
	}
	c.ExtKeyUsage = nil
	if got := judgeCertificate(&c, certNoon); len(got) != 1 {
		t.Error(got)
	}
}
