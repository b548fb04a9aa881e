package etcd

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Options say which etcd, and how.
type Options struct {
	// Endpoints are the members of the cluster: host:port, or http:// or https:// before it.
	Endpoints []string
	// Prefix is where the keys of these engines begin; default /topoctl/default. Engines with one prefix
	// find each other.
	Prefix string
	// TLS is how members are reached; nil: in the clear.
	TLS *tls.Config
	// Username and Password are those of a user of etcd; "": none.
	Username, Password string
	// TTL is how long a record stays when its engine does not renew it; default 15 s, at least 5 s.
	TTL time.Duration
	// RequestTimeout bounds each request to etcd; default 3 s.
	RequestTimeout time.Duration
	// Logger is told what goes wrong in the background; nil: no one is.
	Logger *slog.Logger
}

// The defaults of Options, and the least TTL.
const (
	defaultPrefix = "/topoctl/default"
	defaultTTL    = 15 * time.Second
	leastTTL      = 5 * time.Second

	maxTTL         = time.Hour
	defaultRequest = 3 * time.Second
	defaultPort    = "2379"
	maxPrefix      = 512 // bytes
	maxEndpoints   = 64
	maxSecretFile  = 64 << 10 // bytes
)

// minTTL is leastTTL, but in tests, which wait for leases to end.
var minTTL = leastTTL

// complete checks the options and fills in the defaults.
func (o *Options) complete() error {
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if o.TTL == 0 {
		o.TTL = defaultTTL
	}
	if o.RequestTimeout <= 0 {
		o.RequestTimeout = defaultRequest
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case len(o.Endpoints) == 0 || len(o.Endpoints) > maxEndpoints:
		return fmt.Errorf("%d endpoints: want 1 to %d", len(o.Endpoints), maxEndpoints)
	case o.TTL < minTTL || o.TTL > maxTTL || o.TTL%time.Second != 0:
		return fmt.Errorf("TTL of %v: want %v to %v in whole seconds", o.TTL, leastTTL, maxTTL)
	case o.Password != "" && o.Username == "":
		return errors.New("a password without a user")
	}
	if err := checkPrefix(o.Prefix); err != nil {
		return err
	}
	return o.schemes()
}

// checkPrefix refuses what cannot be told from other keys.
func checkPrefix(prefix string) error {
	if !strings.HasPrefix(prefix, "/") || strings.HasSuffix(prefix, "/") || strings.Contains(prefix, "//") || len(prefix) > maxPrefix ||
		strings.ContainsFunc(prefix, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("prefix %.80q: want printable ASCII of the form /a/b, at most %d bytes", prefix, maxPrefix)
	}
	return nil
}

// schemes gives all endpoints the scheme that says how they are reached, which must be the same for all:
// one in the clear would be told the password.
func (o *Options) schemes() error {
	if o.TLS == nil && slices.ContainsFunc(o.Endpoints, func(e string) bool { return strings.HasPrefix(e, "https://") }) {
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12} // by the CAs of this system
	}
	scheme := "http"
	if o.TLS != nil {
		scheme = "https"
	}
	full := make([]string, 0, len(o.Endpoints))
	for _, e := range o.Endpoints {
		given, host, ok := strings.Cut(e, "://")
		if !ok {
			given, host = scheme, e
		}
		if given != scheme {
			return fmt.Errorf("endpoint %q: want TLS for all endpoints, or for none", e)
		}
		at, err := endpoint(host)
		if err != nil {
			return fmt.Errorf("endpoint %q: %w", e, err)
		}
		full = append(full, scheme+"://"+at)
	}
	o.Endpoints = full
	return nil
}

// endpoint completes host[:port].
func endpoint(text string) (string, error) {
	text = strings.TrimSuffix(text, "/")
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = strings.Trim(text, "[]"), defaultPort
	}
	if n, err := strconv.ParseUint(port, 10, 16); host == "" || err != nil || n == 0 || strings.ContainsAny(host, "/ @?#") {
		return "", errors.New("want host or host:port")
	}
	return net.JoinHostPort(host, port), nil
}

// ParseURL reads etcd://HOST[:PORT],HOST.../PREFIX?KEY=VALUE, and takes what it does not say from the
// variables of etcdctl (ETCDCTL_ENDPOINTS, _CACERT, _CERT, _KEY, _USER, _PASSWORD,
// _INSECURE_SKIP_TLS_VERIFY). Keys name files with credentials as etcdctl's flags do: cacert, cert, key, and
// user-file, which holds NAME:PASSWORD; tls=true checks members by the CAs of this system; ttl is a
// time. A password in the URL is refused, because others can see it in the list of processes.
func ParseURL(text string, getenv func(string) string) (Options, error) {
	o, err := parseURL(text, getenv)
	if err != nil {
		return Options{}, pkgerr.Errorf("etcd", "%w", err)
	}
	return o, nil
}

func parseURL(text string, getenv func(string) string) (Options, error) {
	rest, ok := strings.CutPrefix(text, "etcd://")
	if !ok || len(text) > 4096 {
		return Options{}, fmt.Errorf("%.80q: want etcd://HOST[:PORT][,HOST...][/PREFIX]", text)
	}
	rest, query, _ := strings.Cut(rest, "?")
	hosts, prefix, _ := strings.Cut(rest, "/")
	if strings.Contains(hosts, "@") { // what is before it may be a secret: it is not repeated
		return Options{}, errors.New("a user in the URL: others on this host could read the password; use ETCDCTL_USER, or user-file=FILE with NAME:PASSWORD in it")
	}
	var o Options
	if hosts == "" {
		hosts = getenv("ETCDCTL_ENDPOINTS")
	}
	for e := range strings.SplitSeq(hosts, ",") {
		if e = strings.TrimSpace(e); e != "" {
			o.Endpoints = append(o.Endpoints, e)
		}
	}
	if len(o.Endpoints) == 0 {
		return o, errors.New("no endpoint: want etcd://HOST[:PORT], or ETCDCTL_ENDPOINTS")
	}
	if prefix = strings.TrimSuffix(prefix, "/"); prefix != "" {
		o.Prefix = "/" + prefix
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return o, fmt.Errorf("what follows ? in the URL: %w", err)
	}
	s := settings{getenv: getenv, values: values, used: map[string]bool{}}
	if err := s.read(&o); err != nil {
		return o, err
	}
	for key, list := range values {
		if !s.used[key] || len(list) != 1 {
			return o, fmt.Errorf("%.40q in the URL: want each of cacert, cert, key, user-file, tls and ttl at most once", key)
		}
	}
	check := o // ParseURL gives what Open will take
	return o, check.complete()
}

// settings are what a URL and the environment say.
type settings struct {
	getenv func(string) string
	values url.Values
	used   map[string]bool
}

// get is a value of the URL, else of the environment.
func (s *settings) get(key, variable string) string {
	s.used[key] = true
	if v := s.values.Get(key); v != "" || variable == "" {
		return v
	}
	return s.getenv("ETCDCTL_" + variable)
}

func (s *settings) read(o *Options) error {
	if ttl := s.get("ttl", ""); ttl != "" {
		var err error
		if o.TTL, err = time.ParseDuration(ttl); err != nil {
			return fmt.Errorf("ttl=%.40s: want a time such as 15s", ttl)
		}
	}
	if err := s.readTLS(o); err != nil {
		return err
	}
	user := s.getenv("ETCDCTL_USER")
	if file := s.get("user-file", ""); file != "" {
		data, err := readSmall(file)
		if err != nil {
			return fmt.Errorf("user-file: %w", err)
		}
		user = strings.TrimRight(string(data), "\r\n")
		if !strings.Contains(user, ":") {
			return fmt.Errorf("user-file %s: want a line NAME:PASSWORD", file)
		}
	}
	var both bool
	if o.Username, o.Password, both = strings.Cut(user, ":"); !both {
		o.Password = s.getenv("ETCDCTL_PASSWORD")
	}
	if o.Username == "" {
		o.Password = ""
	}
	return nil
}

func (s *settings) readTLS(o *Options) error {
	ca, cert, key := s.get("cacert", "CACERT"), s.get("cert", "CERT"), s.get("key", "KEY")
	wanted, skip := false, false
	for _, b := range []struct {
		to   *bool
		text string
	}{{&wanted, s.get("tls", "")}, {&skip, s.getenv("ETCDCTL_INSECURE_SKIP_TLS_VERIFY")}} {
		var err error
		if b.text != "" {
			if *b.to, err = strconv.ParseBool(b.text); err != nil {
				return fmt.Errorf("%.40q: want true or false", b.text)
			}
		}
	}
	if ca == "" && cert == "" && key == "" && !wanted && !skip {
		return nil
	}
	o.TLS = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: skip} //nolint:gosec // etcdctl's variable says so
	if ca != "" {
		data, err := readSmall(ca)
		if err != nil {
			return fmt.Errorf("cacert: %w", err)
		}
		o.TLS.RootCAs = x509.NewCertPool()
		if !o.TLS.RootCAs.AppendCertsFromPEM(data) {
			return fmt.Errorf("cacert %s: no certificate in PEM", ca)
		}
	}
	if (cert == "") != (key == "") {
		return errors.New("cert and key come together")
	}
	if cert == "" {
		return nil
	}
	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		return fmt.Errorf("cert: %w", err)
	}
	// Read for each connection: certificates are renewed.
	o.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		return &pair, err
	}
	return nil
}

// readSmall reads a file that is not large.
func readSmall(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxSecretFile {
		return nil, fmt.Errorf("%s: want a file of at most %d bytes", name, maxSecretFile)
	}
	return os.ReadFile(name)
}
