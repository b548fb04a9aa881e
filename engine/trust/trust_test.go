package trust

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// authority is a CA that is valid for the whole of 2026.
func authority(t *testing.T, name string) Pair {
	t.Helper()
	ca, err := NewCA(Subject{CommonName: name, From: noon.AddDate(0, -5, 0), Until: noon.AddDate(0, 7, 0)})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// host is the subject of a certificate that is valid for thirty days around noon.
func host(names ...string) Subject {
	return Subject{CommonName: names[0], DNS: names, From: noon.AddDate(0, 0, -15), Until: noon.AddDate(0, 0, 15)}
}

func TestNames(t *testing.T) {
	spiffe, err := url.Parse("spiffe://cluster/node1")
	if err != nil {
		t.Fatal(err)
	}
	got := Names(&x509.Certificate{URIs: []*url.URL{spiffe}, DNSNames: []string{"node1", "a\x1b[31m", "", "b c"}})
	if want := []string{"spiffe://cluster/node1", "node1"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestCredentials(t *testing.T) {
	var none *Credentials
	two := &Credentials{Tokens: []Token{{"new", []byte("n")}, {"", []byte("o")}}}
	if !none.None() || !(&Credentials{}).None() || two.None() || (&Credentials{Roots: x509.NewCertPool()}).None() {
		t.Error("None is wrong")
	}
	if none.Token("") != nil || none.Shown() != nil || two.Shown().Name != "new" || two.Token("") != &two.Tokens[1] || two.Token("old") != nil {
		t.Error("the wrong token")
	}
}

func TestCheck(t *testing.T) {
	good, err := folder{t, t.TempDir()}.files(authority(t, "ca"), "a "+secretA, "node1").Read()
	if err != nil {
		t.Fatal(err)
	}
	var none *Credentials
	if err = errors.Join(good.Check(), none.Check(), (&Credentials{}).Check()); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Credentials){
		"the token has 5 bytes": func(c *Credentials) { c.Tokens = []Token{{Secret: []byte("short")}} },
		"the token's name":      func(c *Credentials) { c.Tokens = []Token{{"a b", []byte(secretA)}} },
		"come together":         func(c *Credentials) { c.Roots = nil },
		"CAs of peers come":     func(c *Credentials) { c.Certificate = nil },
		"its Leaf":              func(c *Credentials) { c.Certificate = &tls.Certificate{PrivateKey: c.Certificate.PrivateKey} },
		"its key":               func(c *Credentials) { c.Certificate = &tls.Certificate{Leaf: c.Certificate.Leaf} },
	} {
		c := *good
		change(&c)
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
