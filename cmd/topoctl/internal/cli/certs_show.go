package cli

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/internal/text"
)

type certShowOptions struct {
	*Host
	file, keyFile, caFile string
}

func newCertShowCmd(f *Env) *cobra.Command {
	opts := &certShowOptions{Host: f.Host()}
	cmd := newCommand(opts, "show FILE", "Explain a certificate: whose it is, how long it is valid, what is wrong with it")
	cmd.Flags().StringVar(&opts.keyFile, "key-file", "", "check that the key in `FILE` belongs to it")
	cmd.Flags().StringVar(&opts.caFile, "ca-file", "", "check that a CA in `FILE` has signed it")
	Formats(cmd, formatTable, formatJSON)
	return cmd
}

func (o *certShowOptions) parse(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return withHint(errors.New("which file?"), "topoctl cert show FILE")
	}
	o.file = args[0]
	return nil
}

// certSchema is the name and major version of what cert show -o json prints.
const certSchema = "topoctl.cert/v1"

// certDocument is what is known of a file of certificates.
type certDocument struct {
	Schema       string        `json:"schema"`
	File         string        `json:"file"`
	Usable       bool          `json:"usable"`
	Problems     []string      `json:"problems"` // why peers would refuse it
	Certificates []certificate `json:"certificates"`
}

type certificate struct {
	Subject     string   `json:"subject"`
	Issuer      string   `json:"issuer"`
	Names       []string `json:"names"` // URIs, DNS names and addresses
	CA          bool     `json:"ca"`
	Server      bool     `json:"server"` // it is for servers
	Client      bool     `json:"client"`
	ValidFrom   string   `json:"valid_from"`
	ValidUntil  string   `json:"valid_until"`
	Key         string   `json:"key"`
	Fingerprint string   `json:"sha256"`
}

func (o *certShowOptions) run(_ context.Context) error {
	list, data, err := readCertificates(o.file)
	if err != nil {
		return err
	}
	now, leaf := o.Now(), list[0]
	problems := judgeCertificate(leaf, now)
	if o.keyFile != "" {
		key, err := readCertificateFile(o.keyFile)
		if err != nil {
			return err
		}
		if _, err := tls.X509KeyPair(data, key); err != nil {
			problems = append(problems, fmt.Sprintf("%s is not its key (%v)", o.keyFile, err))
		}
	}
	if o.caFile != "" {
		cas, _, err := readCertificates(o.caFile)
		if err != nil {
			return err
		}
		if text := signedBy(list, cas, now); text != "" {
			problems = append(problems, fmt.Sprintf("the CAs of %s: %s", o.caFile, text))
		}
	}
	doc := certDocument{Schema: certSchema, File: o.file, Usable: len(problems) == 0, Problems: append([]string{}, problems...)}
	for _, c := range list {
		doc.Certificates = append(doc.Certificates, newCertificate(c))
	}
	err = o.printAnswer(doc, func() string { return doc.text(leaf, now) })
	if err == nil && !doc.Usable {
		err = errBad
	}
	return err
}

// readCertificateFile reads a file of a size that certificates have.
func readCertificateFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, openError(name, err)
	}
	defer f.Close()
	const most = 1 << 20
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && len(data) > most {
		err = fmt.Errorf("longer than %d bytes", most)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, Cause(err))
	}
	return data, nil
}

func readCertificates(name string) ([]*x509.Certificate, []byte, error) {
	data, err := readCertificateFile(name)
	if err != nil {
		return nil, nil, err
	}
	list, err := trust.ParseCertificates(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return list, data, nil
}

// judgeCertificate says why peers would refuse an engine's certificate, as far as it tells by itself.
func judgeCertificate(c *x509.Certificate, now time.Time) []string {
	var out []string
	if now.After(c.NotAfter) {
		out = append(out, "it has expired, "+certDays(c.NotAfter, now)+" ago: renew it")
	}
	if now.Before(c.NotBefore) {
		out = append(out, "it is not valid before "+certStamp(c.NotBefore)+": compare the clocks")
	}
	if c.IsCA {
		return out
	}
	if len(trust.AllNames(c)) == 0 {
		out = append(out, "it names no host: peers look for a DNS name or an address, not for the subject")
	}
	if !mayBeUsed(c, x509.ExtKeyUsageServerAuth) {
		out = append(out, "it is not for servers: it lacks the extended key usage serverAuth")
	}
	if !mayBeUsed(c, x509.ExtKeyUsageClientAuth) {
		out = append(out, "it is not for clients: it lacks the extended key usage clientAuth")
	}
	return out
}

// mayBeUsed says whether a certificate may be used so: one without the extension may for all.
func mayBeUsed(c *x509.Certificate, u x509.ExtKeyUsage) bool {
	return len(c.ExtKeyUsage)+len(c.UnknownExtKeyUsage) == 0 || slices.Contains(c.ExtKeyUsage, u) || slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny)
}

// signedBy says why the first certificate of a list does not lead to one of the CAs, "" if it does.
func signedBy(list, cas []*x509.Certificate, now time.Time) string {
	o := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	for _, c := range cas {
		o.Roots.AddCert(c)
	}
	for _, c := range list[1:] {
		o.Intermediates.AddCert(c)
	}
	_, err := list[0].Verify(o)
	invalid, ok := errors.AsType[x509.CertificateInvalidError](err)
	switch {
	case err == nil, ok && invalid.Reason == x509.Expired && invalid.Cert == list[0]: // which was said
		return ""
	case ok && invalid.Reason == x509.Expired:
		return fmt.Sprintf("the certificate of %q has expired or is not valid yet", invalid.Cert.Subject.CommonName)
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "none of them has signed it"
	}
	return err.Error()
}

func newCertificate(c *x509.Certificate) certificate {
	return certificate{
		Subject: c.Subject.String(), Issuer: c.Issuer.String(), Names: append([]string{}, trust.AllNames(c)...),
		CA: c.IsCA, Server: !c.IsCA && mayBeUsed(c, x509.ExtKeyUsageServerAuth), Client: !c.IsCA && mayBeUsed(c, x509.ExtKeyUsageClientAuth),
		ValidFrom: certStamp(c.NotBefore), ValidUntil: certStamp(c.NotAfter),
		Key: keyText(c.PublicKey), Fingerprint: fmt.Sprintf("%x", sha256.Sum256(c.Raw)),
	}
}

func keyText(key any) string {
	switch k := key.(type) {
	case *ecdsa.PublicKey:
		return "ECDSA " + k.Curve.Params().Name
	case *rsa.PublicKey:
		return fmt.Sprintf("RSA %d", k.N.BitLen())
	case ed25519.PublicKey:
		return "Ed25519"
	}
	return fmt.Sprintf("%T", key)
}

// soon is when a certificate had better be renewed.
const soon = 30 * 24 * time.Hour

func (d *certDocument) text(leaf *x509.Certificate, now time.Time) string {
	var b strings.Builder
	who := "for " + text.Join(trust.AllNames(leaf), 5)
	if leaf.IsCA {
		who = "as a CA"
	}
	switch left := leaf.NotAfter.Sub(now); {
	case !d.Usable:
		fmt.Fprintf(&b, "%s cannot be used: %s.\n", d.File, strings.Join(d.Problems, "; "))
	case left < soon:
		fmt.Fprintf(&b, "%s is valid %s, but only until %s (%s): renew it.\n", d.File, who, leaf.NotAfter.UTC().Format(time.DateOnly), certDays(now, leaf.NotAfter))
	default:
		fmt.Fprintf(&b, "%s is valid %s until %s (%s).\n", d.File, who, leaf.NotAfter.UTC().Format(time.DateOnly), certDays(now, leaf.NotAfter))
	}
	for _, c := range d.Certificates {
		use := map[[3]bool]string{{true, false, false}: "CA", {false, true, true}: "servers and clients", {false, true, false}: "servers", {false, false, true}: "clients"}[[3]bool{c.CA, c.Server, c.Client}]
		rows := [][]string{{"subject", c.Subject}, {"names", strings.Join(c.Names, ", ")}, {"for", use}, {"valid", c.ValidFrom + " to " + c.ValidUntil},
			{"signed by", c.Issuer}, {"key", c.Key}, {"SHA-256", c.Fingerprint}}
		b.WriteByte('\n')
		for _, row := range rows {
			if row[1] != "" {
				fmt.Fprintf(&b, "  %-9s  %s\n", row[0], row[1])
			}
		}
	}
	return b.String()
}

func certStamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// certDays is the time between two moments.
func certDays(from, to time.Time) string {
	if n := int(to.Sub(from).Hours()/24 + 0.5); n > 0 {
		return text.Plural(n, "day")
	}
	return "less than a day"
}
