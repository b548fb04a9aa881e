package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/internal/text"
)

// certFlags are the flags of the commands that make certificates.
type certFlags struct {
	dir   string
	days  int
	force bool
}

func (m *certFlags) add(cmd *cobra.Command, days int) {
	fl := cmd.Flags()
	intFlag(cmd, &m.days, "days", days, 1, mostDays, "how many `DAYS` the certificate is valid")
	fl.StringVar(&m.dir, "dir", ".", "write the files to `DIR`")
	fl.BoolVar(&m.force, "force", false, "replace files that exist")
	if err := cmd.MarkFlagDirname("dir"); err != nil {
		panic(err)
	}
}

// mostDays keeps dates within those that certificates can have.
const mostDays = 100 * 365

// validity begins a little earlier, for hosts whose clocks are behind.
func (m *certFlags) validity(now time.Time) (from, until time.Time) {
	return now.Add(-time.Hour), now.AddDate(0, 0, m.days)
}

// write puts a pair into NAME.crt and NAME.key. Both are made anew, or with force replaced.
func (m *certFlags) write(name string, p trust.Pair) (cert, key string, err error) {
	cert, key = filepath.Join(m.dir, name+".crt"), filepath.Join(m.dir, name+".key")
	if m.force {
		// The certificate comes last: engines that read the files again take a pair when both fit.
		err = writeFile(key, p.Key, ownerOnly)
		if err == nil {
			err = writeFile(cert, p.Certificate, everyone)
		}
		return cert, key, err
	}
	if err := createFile(key, p.Key, ownerOnly); err != nil {
		return "", "", err
	}
	if err := createFile(cert, p.Certificate, everyone); err != nil {
		return "", "", errors.Join(err, os.Remove(key))
	}
	return cert, key, nil
}

// createFile writes a file that does not exist yet.
func createFile(name string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return withHint(fmt.Errorf("%s exists", name), "use --force to replace it")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, Cause(err))
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%s: %w", name, errors.Join(err, os.Remove(name)))
	}
	return nil
}

type certCAOptions struct {
	*Host
	certFlags
	name string
}

func newCertCACmd(f *Env) *cobra.Command {
	opts := &certCAOptions{Host: f.Host()}
	cmd := newCommand(opts, "ca", "Make a CA, which signs the certificates of hosts")
	opts.add(cmd, 10*365)
	cmd.Flags().StringVar(&opts.name, "name", "", "the `NAME` that the certificate shows to people (default \"topoctl CA\" and the date)")
	Prints(cmd, "what it wrote")
	return cmd
}

func (o *certCAOptions) parse(*cobra.Command, []string) error {
	if len(o.name) > 64 {
		return errors.New("--name: want 64 bytes at most")
	}
	return nil
}

func (o *certCAOptions) run(_ context.Context) error {
	now := o.Now()
	if o.name == "" {
		o.name = "topoctl CA " + now.Format(time.DateOnly)
	}
	from, until := o.validity(now)
	p, err := trust.NewCA(trust.Subject{CommonName: o.name, From: from, Until: until})
	if err != nil {
		return err
	}
	cert, key, err := o.write("ca", p)
	if err != nil {
		return err
	}
	return Write(o.Streams.Out, fmt.Appendf(nil, "%s is a new CA, valid until %s.\n"+
		"  %s  signs certificates that your hosts accept: keep it to yourself\n"+
		"  next: topoctl cert host NAME, for each host; copy its certificate and key and %s there\n",
		text.Printable(cert), until.UTC().Format(time.DateOnly), text.Printable(key), text.Printable(cert)))
}

type certHostOptions struct {
	*Host
	certFlags
	ca, caKey      string
	dns, ips, uris []string

	name    string
	subject trust.Subject
}

func newCertHostCmd(f *Env) *cobra.Command {
	opts := &certHostOptions{Host: f.Host()}
	cmd := newCommand(opts, "host NAME", "Make the certificate of a host and its key")
	opts.add(cmd, 365)
	fl := cmd.Flags()
	fl.StringSliceVar(&opts.dns, "dns", nil, "more `NAMES` of the host, comma-separated or repeated")
	fl.StringSliceVar(&opts.ips, "ip", nil, "`ADDRESSES` at which peers open it")
	fl.StringSliceVar(&opts.uris, "uri", nil, "`URIS` that identify it, such as spiffe://cluster/node1")
	fl.StringVar(&opts.ca, "ca", "", "the CA's certificate, `FILE` (default ca.crt in --dir)")
	fl.StringVar(&opts.caKey, "ca-key", "", "the CA's key, `FILE` (default ca.key in --dir)")
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	Prints(cmd, "what it wrote")
	return cmd
}

// dnsName is a host name, or with a star all names of a domain.
var dnsName = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9._-]{0,250}[A-Za-z0-9_])?$`)

func (o *certHostOptions) parse(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return withHint(errors.New("which host is it for?"), "topoctl cert host NAME, such as the name or address by which others reach it")
	}
	o.name = args[0]
	if _, err := netip.ParseAddr(o.name); err == nil {
		o.ips = append([]string{o.name}, o.ips...)
	} else {
		o.dns = append([]string{o.name}, o.dns...)
	}
	s := &o.subject
	s.CommonName, s.DNS = o.name, o.dns
	for i, name := range o.dns {
		if !dnsName.MatchString(name) || i == 0 && o.name[0] == '*' {
			return fmt.Errorf("%q: want the name of a host, or its address", name)
		}
	}
	for _, ip := range o.ips {
		a, err := netip.ParseAddr(ip)
		if err != nil || a.Zone() != "" {
			return fmt.Errorf("--ip %q: want an address without zone", ip)
		}
		s.IPs = append(s.IPs, net.IP(a.Unmap().AsSlice()))
	}
	for _, uri := range o.uris {
		u, err := url.Parse(uri)
		if err != nil || u.Scheme == "" || u.Host == "" {
			return fmt.Errorf("--uri %q: want a URI, such as spiffe://cluster/node1", uri)
		}
		s.URIs = append(s.URIs, u)
	}
	return nil
}

func (o *certHostOptions) run(_ context.Context) error {
	if o.ca == "" {
		o.ca = filepath.Join(o.dir, "ca.crt")
	}
	if o.caKey == "" {
		o.caKey = filepath.Join(o.dir, "ca.key")
	}
	if o.name == "ca" {
		return withHint(errors.New("NAME ca: its files would be those of the CA"), "give the host another name, and add this one with --dns ca")
	}
	var ca trust.Pair
	for _, f := range []struct {
		name string
		to   *[]byte
	}{{o.ca, &ca.Certificate}, {o.caKey, &ca.Key}} {
		var err error
		if *f.to, err = os.ReadFile(f.name); errors.Is(err, fs.ErrNotExist) {
			return withHint(fmt.Errorf("%s: no such file", f.name), "make a CA with \"topoctl cert ca\", or name one with --ca and --ca-key")
		} else if err != nil {
			return fmt.Errorf("%s: %w", f.name, Cause(err))
		}
	}
	s := o.subject
	s.From, s.Until = o.validity(o.Now())
	p, err := ca.Issue(s)
	if err != nil {
		return fmt.Errorf("%s with %s: %w", o.ca, o.caKey, err)
	}
	list, err := trust.ParseCertificates(p.Certificate)
	if err != nil {
		return err
	}
	cert, key, err := o.write(o.name, p)
	if err != nil {
		return err
	}
	shorter := ""
	if list[0].NotAfter.Before(s.Until.Truncate(time.Second)) {
		shorter = " (when the CA's certificate expires)"
	}
	return Write(o.Streams.Out, fmt.Appendf(nil, "%s is for %s, valid until %s%s.\n  use: --cert-file %s --key-file %s --ca-file %s\n",
		text.Printable(cert), strings.Join(trust.AllNames(list[0]), ", "), list[0].NotAfter.Format(time.DateOnly), shorter,
		text.Printable(cert), text.Printable(key), text.Printable(o.ca)))
}
