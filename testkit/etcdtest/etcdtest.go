// Package etcdtest starts etcd servers for tests: the program etcd of this system (Debian: etcd-server).
package etcdtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/topoctl/topoctl/testkit/childtest"
)

// Patience bounds what must happen at some time.
const Patience = 60 * time.Second

// Cluster is etcd with one member or more, on loopback addresses.
type Cluster struct {
	Members []*Member
	TLS     *Authority // nil: in the clear
}

// Member is one etcd.
type Member struct {
	Address string // host:port for clients
	args    []string
	log     string
	program string
	prefix  []string // a command that runs it, such as in a namespace

	mu  sync.Mutex
	cmd *exec.Cmd
}

// Options of a cluster.
type Options struct {
	Members int // default 1
	TLS     bool
	Listen  string   // IP address; default 127.0.0.1
	Within  []string // a command to run etcd by, such as ip netns exec NAME
}

// Program is etcd's; without it the test is skipped, unless TOPOCTL_REGISTRY=must says that it has to run.
func Program(tb testing.TB) string {
	tb.Helper()
	path, err := exec.LookPath("etcd")
	if err == nil {
		return path
	}
	if os.Getenv("TOPOCTL_REGISTRY") == "must" {
		tb.Fatalf("%v (Debian: apt-get install etcd-server)", err)
	}
	tb.Skipf("%v (Debian: apt-get install etcd-server)", err)
	return ""
}

// Start starts a cluster, which ends with the test, and waits until it answers.
func Start(tb testing.TB, o Options) *Cluster {
	tb.Helper()
	c := &Cluster{}
	program, dir := Program(tb), tb.TempDir()
	if o.Members == 0 {
		o.Members = 1
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1"
	}
	scheme := "http"
	if o.TLS {
		c.TLS, scheme = NewAuthority(tb), "https"
	}
	port := func() string { // held, so that a member has it again when it is started again
		_, port, _ := net.SplitHostPort(childtest.Address(tb))
		return net.JoinHostPort(o.Listen, port)
	}
	var peers []string
	for i := range o.Members {
		peers = append(peers, fmt.Sprintf("m%d=http://%s", i, port()))
	}
	for i := range o.Members {
		at, peer := port(), strings.SplitN(peers[i], "=", 2)[1]
		m := &Member{Address: at, program: program, prefix: o.Within, log: filepath.Join(dir, fmt.Sprintf("m%d.log", i)), args: []string{
			"--name", fmt.Sprintf("m%d", i), "--data-dir", filepath.Join(dir, fmt.Sprintf("m%d", i)),
			"--listen-client-urls", scheme + "://" + at, "--advertise-client-urls", scheme + "://" + at,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", strings.Join(peers, ","), "--initial-cluster-token", filepath.Base(dir), "--initial-cluster-state", "new",
			"--heartbeat-interval", "200", "--election-timeout", "2000", "--snapshot-count", "1000",
		}}
		if o.TLS {
			cert, key := c.TLS.Issue(tb, "etcd", o.Listen)
			m.args = append(m.args, "--cert-file", cert, "--key-file", key, "--client-cert-auth", "--trusted-ca-file", c.TLS.File)
		}
		c.Members = append(c.Members, m)
		tb.Cleanup(func() {
			m.Kill()
			if tb.Failed() {
				if log, err := os.ReadFile(m.log); err == nil {
					tb.Logf("the end of %s:\n%s", m.log, log[max(0, len(log)-3000):])
				}
			}
		})
		m.Run(tb)
	}
	c.Ready(tb)
	return c
}

// Endpoints are the addresses of all members.
func (c *Cluster) Endpoints() []string {
	var out []string
	for _, m := range c.Members {
		out = append(out, m.Address)
	}
	return out
}

// URL is that of a registry in the cluster.
func (c *Cluster) URL(prefix string) string {
	return "etcd://" + strings.Join(c.Endpoints(), ",") + prefix
}

// Put puts a value there as an engine would, under a lease, but whatever it is.
func Put(ctx context.Context, cl *clientv3.Client, key, value string) error {
	lease, err := cl.Grant(ctx, 3600)
	if err == nil {
		_, err = cl.Put(ctx, key, value, clientv3.WithLease(lease.ID))
	}
	return err
}

// Client is etcd's own client, with options beside its endpoints.
func (c *Cluster) Client(tb testing.TB, with ...func(*clientv3.Config)) *clientv3.Client {
	tb.Helper()
	o := clientv3.Config{Endpoints: c.Endpoints(), Logger: zap.NewNop(), DialTimeout: Patience}
	if c.TLS != nil {
		o.TLS = c.TLS.Client(tb, "root")
		for i, e := range o.Endpoints {
			o.Endpoints[i] = "https://" + e
		}
	}
	for _, w := range with {
		w(&o)
	}
	cl, err := clientv3.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = cl.Close() })
	return cl
}

// Ready waits until the cluster answers.
func (c *Cluster) Ready(tb testing.TB) {
	tb.Helper()
	cl := c.Client(tb)
	defer cl.Close() //nolint:errcheck // it was there to ask
	deadline := time.Now().Add(Patience)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := cl.Get(ctx, "ready")
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("etcd does not answer in %v: %v", Patience, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Run starts the member, again after Kill: with the data that it had.
func (m *Member) Run(tb testing.TB) {
	tb.Helper()
	log, err := os.OpenFile(m.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	defer log.Close()
	words := append(append(append([]string{}, m.prefix...), m.program), m.args...)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithUs(cmd.SysProcAttr)
	cmd.Env = append(os.Environ(), "ETCD_UNSUPPORTED_ARCH=arm64")
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cmd = cmd
}

// Kill is kill -9; it waits until the member is gone.
func (m *Member) Kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd == nil {
		return
	}
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait()
	m.cmd = nil
}

// Signal sends the member a signal, SIGSTOP or SIGCONT; it waits until the member has stopped.
func (m *Member) Signal(tb testing.TB, s syscall.Signal) {
	tb.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if s == syscall.SIGSTOP {
		childtest.Stop(tb, m.cmd.Process)
	} else if err := m.cmd.Process.Signal(s); err != nil {
		tb.Fatal(err)
	}
}

// Authority is a CA with its files.
type Authority struct {
	File string
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes one.
func NewAuthority(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{dir: tb.TempDir()}
	a.File = filepath.Join(a.dir, "ca.pem")
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.cert, a.key = a.sign(tb, template, a.File, filepath.Join(a.dir, "ca.key"))
	return a
}

// sign writes a certificate, signed by itself where there is no CA yet.
func (a *Authority) sign(tb testing.TB, template *x509.Certificate, certFile, keyFile string) (*x509.Certificate, *ecdsa.PrivateKey) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return cert, key
}

// Issue makes a certificate for a name, which is etcd's user for clients, and addresses.
func (a *Authority) Issue(tb testing.TB, name string, addresses ...string) (certFile, keyFile string) {
	tb.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		tb.Fatal(err)
	}
	t := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}, DNSNames: []string{name}}
	for _, at := range addresses {
		t.IPAddresses = append(t.IPAddresses, net.ParseIP(at))
	}
	base := filepath.Join(a.dir, fmt.Sprintf("%s-%d", name, serial))
	a.sign(tb, t, base+".pem", base+".key")
	return base + ".pem", base + ".key"
}

// Client is what a client with a certificate of that name uses.
func (a *Authority) Client(tb testing.TB, name string) *tls.Config {
	tb.Helper()
	cert, key := a.Issue(tb, name)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		tb.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, RootCAs: roots}
}
