package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"
)

// Pair is a certificate and its key, as PEM.
type Pair struct{ Certificate, Key []byte }

// Subject is who a certificate is for, and for how long.
type Subject struct {
	CommonName  string // for people; engines compare the other names
	DNS         []string
	IPs         []net.IP
	URIs        []*url.URL
	From, Until time.Time
}

// NewCA makes a certificate that signs those of engines, and nothing else.
func NewCA(s Subject) (Pair, error) {
	template := s.template()
	template.IsCA = true
	template.MaxPathLenZero = true // no CA below it
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	return create(template, template, nil)
}

// Issue makes the certificate of an engine, which both serves and dials. It does not outlive
// the CA's.
func (ca Pair) Issue(s Subject) (Pair, error) {
	signer, err := tls.X509KeyPair(ca.Certificate, ca.Key)
	if err != nil {
		return Pair{}, err
	}
	if !signer.Leaf.IsCA {
		return Pair{}, errors.New("the certificate to sign with is not a CA's")
	}
	template := s.template()
	if signer.Leaf.NotAfter.Before(template.NotAfter) {
		template.NotAfter = signer.Leaf.NotAfter
	}
	if !template.NotBefore.Before(template.NotAfter) {
		return Pair{}, fmt.Errorf("the certificate would be valid from %s to %s: renew the CA", template.NotBefore.UTC().Format(time.RFC3339), template.NotAfter.UTC().Format(time.RFC3339))
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	return create(template, signer.Leaf, signer.PrivateKey.(crypto.Signer))
}

func (s *Subject) template() *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: s.CommonName}, DNSNames: s.DNS, IPAddresses: s.IPs, URIs: s.URIs,
		NotBefore: s.From, NotAfter: s.Until, BasicConstraintsValid: true,
	}
}

// create signs a template with a new key in it; without signer by that key itself.
func create(template, parent *x509.Certificate, signer crypto.Signer) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}, nil
}
