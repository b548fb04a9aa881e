package trust

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Files names the files that an engine's credentials are read from; "" is none. Certificate, Key
// and CA come together.
type Files struct {
	Token       string // a line for each token: its secret, or its name and its secret; the first is shown to peers
	Certificate string // PEM: the engine's certificate, then those between it and its CA
	Key         string // PEM: the certificate's key
	CA          string // PEM: the CAs whose certificates peers may have
}

// FileError is what is wrong with one of the files.
type FileError struct {
	Kind string // token, cert, key or ca
	Name string
	Err  error
}

func (e *FileError) Error() string { return fmt.Sprintf("%s file %s: %v", e.Kind, e.Name, e.Err) }
func (e *FileError) Unwrap() error { return e.Err }

// Read reads the files as they are now.
func (f Files) Read() (*Credentials, error) {
	var none contents
	data, err := f.contents(&none)
	if err != nil {
		return nil, err
	}
	return f.parse(data)
}

// recheck is how long files are taken to be as they were.
const recheck = time.Second

// Watch reads the files, and gives the credentials of the moment from then on: when it is asked
// and has not looked for a second it looks whether the files have changed. Where what is new
// cannot be read the former credentials stay, and log says why. What is no regular file, such as
// a pipe, is read once.
func (f Files) Watch(log *slog.Logger) (func() *Credentials, error) {
	return f.watch(log, time.Now)
}

func (f Files) watch(log *slog.Logger, now func() time.Time) (func() *Credentials, error) {
	w := &watcher{files: f, log: log, now: now, looked: now()}
	data, err := f.contents(&w.data)
	if err != nil {
		return nil, err
	}
	c, err := f.parse(data)
	if err != nil {
		return nil, err
	}
	w.data = data
	w.current.Store(c)
	return w.credentials, nil
}

// Exposed gives the mode of a file of secrets where others on this host can read or change it.
// A group that may read is how a service has a file of root's, and a pod its Secret.
func Exposed(name string) (fs.FileMode, bool) {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() {
		return 0, false
	}
	return info.Mode().Perm(), info.Mode().Perm()&0o027 != 0
}

// watcher is files that are looked at again.
type watcher struct {
	files   Files
	log     *slog.Logger
	now     func() time.Time
	current atomic.Pointer[Credentials]

	mu     sync.Mutex // held by who looks; others do not wait for the file system
	looked time.Time
	data   contents
	failed string // what was logged
}

func (w *watcher) credentials() *Credentials {
	if w.mu.TryLock() {
		if now := w.now(); now.Sub(w.looked) >= recheck {
			w.looked = now
			w.look()
		}
		w.mu.Unlock()
	}
	return w.current.Load()
}

func (w *watcher) look() {
	data, err := w.files.contents(&w.data)
	if err == nil && data.equal(&w.data) {
		w.failed = ""
		return
	}
	var c *Credentials
	if err == nil {
		c, err = w.files.parse(data)
	}
	if err != nil {
		if text := err.Error(); text != w.failed {
			w.failed = text
			w.log.Error("credentials have changed and cannot be read: the former ones stay", "error", err)
		}
		return
	}
	w.data, w.failed = data, ""
	w.current.Store(c)
	w.log.Info("credentials were read again", c.attributes()...)
}

// attributes say what credentials are, without their secrets.
func (c *Credentials) attributes() []any {
	var out []any
	if len(c.Tokens) > 0 {
		names := make([]string, len(c.Tokens))
		for i, t := range c.Tokens {
			names[i] = t.Name
		}
		out = append(out, "tokens", names)
	}
	if c.Certificate != nil {
		out = append(out, "certificate", Describe(c.Certificate.Leaf), "valid_to", c.Certificate.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return out
}

// contents are what the files had.
type contents struct{ token, cert, key, ca content }

type content struct {
	data  []byte
	fixed bool // it cannot be read again
}

func (c *contents) equal(d *contents) bool {
	return bytes.Equal(c.token.data, d.token.data) && bytes.Equal(c.cert.data, d.cert.data) &&
		bytes.Equal(c.key.data, d.key.data) && bytes.Equal(c.ca.data, d.ca.data)
}

// maxFile bounds what is read of one file.
const maxFile = 1 << 20

func (f Files) contents(before *contents) (contents, error) {
	var out contents
	for _, x := range []struct {
		kind, name string
		before, to *content
	}{
		{"token", f.Token, &before.token, &out.token}, {"cert", f.Certificate, &before.cert, &out.cert},
		{"key", f.Key, &before.key, &out.key}, {"ca", f.CA, &before.ca, &out.ca},
	} {
		if x.name == "" {
			continue
		}
		*x.to = *x.before
		if x.before.fixed {
			continue
		}
		err := x.before.steady(x.name)
		if err == nil {
			err = x.to.read(x.name, x.kind == "token")
		}
		if err != nil {
			if cause, ok := errors.AsType[*fs.PathError](err); ok {
				err = cause.Err
			}
			return contents{}, &FileError{x.kind, x.name, err}
		}
	}
	return out, nil
}

// steady refuses what has come in the place of a file that was read before and is none: to open a pipe waits
// for one who writes.
func (c *content) steady(name string) error {
	if c.data == nil {
		return nil
	}
	info, err := os.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it was a regular file, and is none any more")
	}
	return err
}

// read reads a file; of a pipe of tokens the first line.
func (c *content) read(name string, line bool) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	c.fixed = !info.Mode().IsRegular() && !info.IsDir()
	if c.fixed && line {
		text, err := firstLine(file)
		c.data = []byte(text)
		return err
	}
	c.data, err = io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(c.data) > maxFile {
		err = fmt.Errorf("longer than %d bytes", maxFile)
	}
	return err
}

func (f Files) parse(data contents) (*Credentials, error) {
	out := &Credentials{}
	var err error
	if f.Token != "" {
		if out.Tokens, err = parseTokens(data.token.data); err != nil {
			return nil, &FileError{"token", f.Token, err}
		}
	}
	if f.Certificate == "" && f.Key == "" && f.CA == "" {
		return out, nil
	}
	if f.Certificate == "" || f.Key == "" || f.CA == "" {
		return nil, errors.New("a certificate, its key and the CA of peers come together: one of the files is missing")
	}
	pair, err := tls.X509KeyPair(data.cert.data, data.key.data)
	if err != nil {
		return nil, &FileError{"cert", f.Certificate, fmt.Errorf("with the key of %s: %w", f.Key, err)}
	}
	if _, err := ParseCertificates(data.cert.data); err != nil { // X509KeyPair passes over what is cut off
		return nil, &FileError{"cert", f.Certificate, err}
	}
	if out.Roots, err = parseRoots(data.ca.data); err != nil {
		return nil, &FileError{"ca", f.CA, err}
	}
	out.Certificate = &pair
	return out, nil
}

func parseRoots(data []byte) (*x509.CertPool, error) {
	list, err := ParseCertificates(data)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, c := range list {
		if !c.IsCA {
			return nil, fmt.Errorf("the certificate %s is not a CA's", Describe(c))
		}
		pool.AddCert(c)
	}
	return pool, nil
}

// ParseCertificates reads the certificates of a PEM file, one or more, and refuses a file in which
// one begins that cannot be read: it may have been cut off, and pem.Decode passes over such.
func ParseCertificates(data []byte) ([]*x509.Certificate, error) {
	begun := bytes.Count(data, []byte("-----BEGIN CERTIFICATE-----"))
	var out []*x509.Certificate
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	switch {
	case begun > len(out):
		return nil, fmt.Errorf("of its certificates (PEM), %d of %d cannot be read: it was cut off or changed", begun-len(out), begun)
	case out == nil:
		return nil, errors.New("no certificate in it (PEM)")
	}
	return out, nil
}
