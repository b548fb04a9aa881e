package session

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/topoctl/topoctl/engine/internal/peertls"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/trust"
)

// readPacket reads a packet of the handshake: a head whose last two bytes say
// how much follows. Not a byte more is read, what comes next is not ours.
func readPacket(r io.Reader, head int) ([]byte, error) {
	b := make([]byte, head, 256)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	return readRest(r, b)
}

// readRest reads what follows a head.
func readRest(r io.Reader, b []byte) ([]byte, error) {
	head := len(b)
	if head == helloHead && string(b[:len(magic)]) != magic {
		return nil, ErrNotEngine
	}
	n := int(binary.BigEndian.Uint16(b[head-2:]))
	if head+n > maxPacket {
		return nil, fmt.Errorf("%w: %d bytes", errMalformed, head+n)
	}
	b = append(b, make([]byte, n)...)
	if _, err := io.ReadFull(r, b[head:]); err != nil {
		return nil, err
	}
	return b, nil
}

// established is what the dialling side knows after a handshake.
type established struct {
	conn    net.Conn
	route   Route
	welcome welcome
	peer    trust.PeerID
	key     sessionKey
	trip    time.Duration
}

// dialHandshake does the dialling side of the handshake. sec is what both sides prove that they
// have, key is the session's where the hello resumes one. The caller has set the connection's
// deadline.
func dialHandshake(c net.Conn, h hello, sec shared, key sessionKey) (established, error) {
	out := established{conn: c}
	h.min, h.max, h.features = minVersion, maxVersion, ourFeatures
	random(h.nonce[:])
	t := transcript{exporter: exporterOf(c), hello: h.encode()}
	if _, err := c.Write(t.hello); err != nil {
		return out, handshakeError(err)
	}
	var err error
	if t.answer, err = readPacket(c, helloHead); err != nil {
		return out, handshakeError(err)
	}
	a, err := parseAnswer(t.answer)
	if err != nil {
		return out, err
	}
	if err := checkAnswer(&a, &h); err != nil {
		return out, err
	}
	p := proof{client: t.clientProof(sec), hasResume: h.resume}
	if h.resume {
		p.resume = t.resumeProof(key)
	}
	t.proof = p.encode()
	sent := time.Now()
	if _, err := c.Write(t.proof); err != nil {
		return out, handshakeError(err)
	}
	packet, err := readPacket(c, 2)
	if err != nil {
		return out, handshakeError(err)
	}
	out.trip = time.Since(sent)
	if out.welcome, err = parseWelcome(packet); err != nil {
		return out, err
	}
	if out.welcome.status == statusToken {
		if h.tokenName != "" {
			return out, fmt.Errorf("%w: the peer has no token %q with this secret, or something on the way passes on what both say", sec.differs, h.tokenName)
		}
		return out, fmt.Errorf("%w, or something on the way passes on what both say", sec.differs)
	}
	var resumed []byte
	if h.resume && out.welcome.status == statusOK {
		resumed = key[:]
	}
	if !equal(out.welcome.proof, t.serverProof(sec, packet, resumed)) {
		return out, fmt.Errorf("%w: the peer could not prove over this connection that it has ours", sec.differs)
	}
	out.key = t.key(sec)
	return out, checkWelcome(&out.welcome)
}

// checkAnswer is about what the server said before it was proven who it is.
func checkAnswer(a *answer, h *hello) error {
	switch a.status {
	case statusOK, statusToken:
	case statusVersion:
		return fmt.Errorf("%w: the peer speaks %d to %d, we %d to %d", ErrVersion, a.min, a.max, minVersion, maxVersion)
	case statusBusy:
		return errBusy
	case statusEnded:
		if h.kind == kindData {
			return ErrEnded
		}
		fallthrough
	default:
		return fmt.Errorf("%w: status %d", errMalformed, a.status)
	}
	switch {
	case h.kind == kindData && a.status == statusOK:
		return nil
	case a.token && !h.token:
		return fmt.Errorf("%w: the peer asks for a token, none is set here", ErrToken)
	case !a.token && h.token:
		return fmt.Errorf("%w: a token is set here, the peer has none", ErrToken)
	case a.status == statusOK:
		return nil
	case a.certificate:
		return fmt.Errorf("%w: the peer asks for a certificate, none is set here", trust.ErrCertificate)
	}
	return ErrToken
}

// refusal is an authenticated server's no.
type refusal struct {
	status status
	cause  error
	epoch  uint64
	name   string
}

func (r *refusal) Error() string { return r.cause.Error() }
func (r *refusal) Unwrap() error { return r.cause }

func checkWelcome(w *welcome) error {
	cause := map[status]error{
		statusLimit: ErrLimit, statusRestarted: ErrRestarted, statusEnded: ErrEnded,
	}[w.status]
	if w.status == statusOK {
		return nil
	}
	if cause == nil {
		cause = fmt.Errorf("%w: status %d", errMalformed, w.status)
	}
	return &refusal{status: w.status, cause: cause, epoch: w.epoch, name: w.name}
}

var (
	// errBusy and errCut pass: trying again soon may work.
	errBusy = errors.New("peer is busy")
	errCut  = errors.New("peer closed the connection during the handshake: it is no topoctl engine, or too many connections are in their handshake there")
)

func handshakeError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || isReset(err) {
		return errCut
	}
	return err
}

// sameProof says whether two connections have proven to be of the same peer.
func sameProof(a, b trust.PeerID) bool {
	return a.Token == b.Token && slices.Equal(a.Certificate, b.Certificate)
}

// arrival is a connection in its handshake, seen from the server.
type arrival struct {
	conn  net.Conn
	hello hello
	t     transcript
	sec   shared
	key   sessionKey
	proof proof
	peer  trust.PeerID
}

// lock is what a server demands of connections.
type lock struct {
	credentials *trust.Credentials
	// dataKey finds what the dialler of a data connection has to prove that it has.
	dataKey func(*hello) (shared, bool)
}

// acceptHandshake does the server's side up to the point where the dialler has proven what
// is demanded of it. head is that of the hello.
func acceptHandshake(c net.Conn, head []byte, k lock) (*arrival, error) {
	a := &arrival{conn: c}
	a.t.exporter = exporterOf(c)
	var err error
	if a.t.hello, err = readRest(c, head); err != nil {
		return nil, err
	}
	if a.hello, err = parseHello(a.t.hello); err != nil {
		return nil, err
	}
	ans := answer{min: minVersion, max: maxVersion, version: a.hello.version(), status: statusVersion}
	random(ans.nonce[:])
	var candidates []shared
	if ans.version != 0 {
		ans.features = a.hello.features & ourFeatures
		candidates = k.candidates(a, &ans)
	}
	a.t.answer = ans.encode()
	if _, err := c.Write(a.t.answer); err != nil {
		return nil, err
	}
	if ans.status == statusToken && ans.certificate && a.hello.token == ans.token {
		return nil, &peertls.Error{Cause: peertls.NoCertificate} // nor TLS
	}
	if ans.status != statusOK {
		return nil, refusedBy(ans.status)
	}
	if a.t.proof, err = readPacket(c, 2); err != nil {
		return nil, err
	}
	if a.proof, err = parseProof(a.t.proof, a.hello.resume); err != nil {
		return nil, err
	}
	found := slices.IndexFunc(candidates, func(sec shared) bool { return equal(a.proof.client, a.t.clientProof(sec)) })
	if found < 0 {
		// No proof of ours and no name: a peer without the token learns nothing.
		w := welcome{status: statusToken}
		_, _ = c.Write(w.encode())
		return nil, refused{RefusedToken}
	}
	a.sec = candidates[found]
	a.key = a.t.key(a.sec)
	return a, nil
}

// candidates are the secrets of which the dialler has to prove one. It completes the answer,
// whose status tells where there are none.
func (k lock) candidates(a *arrival, ans *answer) []shared {
	ans.status = statusOK
	if a.hello.kind == kindData {
		if sec, ok := k.dataKey(&a.hello); ok {
			return []shared{sec}
		}
		ans.status = statusEnded
		return nil
	}
	creds := k.credentials
	_, tls := a.conn.(*secured)
	ans.token, ans.certificate = creds != nil && len(creds.Tokens) > 0, creds != nil && creds.Roots != nil
	if a.hello.token != ans.token || !tls && !creds.None() {
		ans.status = statusToken
		return nil
	}
	a.peer = trust.PeerID{Certificate: namesOf(a.conn), Claimed: a.hello.name}
	if !ans.token {
		return []shared{tokenSecret(nil)}
	}
	a.peer.Token = a.hello.tokenName
	var list []shared
	for i := range creds.Tokens { // more than one has a name while it is renewed
		if t := &creds.Tokens[i]; t.Name == a.hello.tokenName {
			list = append(list, tokenSecret(t))
		}
	}
	if list == nil {
		// A name that there is not is refused as late as a wrong secret, and looks the same:
		// strangers do not learn the names.
		unknown := make([]byte, trust.MinSecret)
		random(unknown)
		list = []shared{tokenSecret(&trust.Token{Secret: unknown})}
	}
	return list
}

// reply ends the handshake. resumed is the key of the session that goes on, nil if none does.
func (a *arrival) reply(id *Identity, l Limits, st status, resumed []byte) error {
	w := welcome{
		status: st, epoch: id.Epoch, name: id.Name,
		messageBytes: uint32(l.MessageBytes), calls: uint32(l.CallsInFlight),
	}
	b := w.encode()
	p := a.t.serverProof(a.sec, b, resumed)
	copy(b[welcomeProofAt:], p[:])
	_, err := a.conn.Write(b)
	return err
}

// resumes says whether the arrival proves that it is the session's own dialler.
func (a *arrival) resumes(key sessionKey) bool {
	return equal(a.proof.resume, a.t.resumeProof(key))
}

func controlHello(id Identity, l Limits, session transport.SessionID, token *trust.Token) hello {
	h := hello{
		kind: kindControl, epoch: id.Epoch, session: session, name: id.Name, token: token != nil,
		messageBytes: uint32(l.MessageBytes), calls: uint32(l.CallsInFlight),
	}
	if token != nil {
		h.tokenName = token.Name
	}
	return h
}

// What a MAC is for goes into it, so that none can be used as another.
const (
	labelClient     = "topoctl/2 client\x00"
	labelServer     = "topoctl/2 server\x00"
	labelDataClient = "topoctl/2 data client\x00"
	labelDataServer = "topoctl/2 data server\x00"
	labelSession    = "topoctl/2 session key\x00"
	labelResume     = "topoctl/2 resume\x00"
	labelLeave      = "topoctl/2 leave\x00"
)

// shared is what both sides of a handshake prove that they have.
type shared struct {
	key            []byte
	client, server string // labels of the proofs
	differs        error  // where the other side has not got it
}

// tokenSecret is that of a control connection; no token is an empty key.
func tokenSecret(t *trust.Token) shared {
	sec := shared{client: labelClient, server: labelServer, differs: ErrToken}
	if t != nil {
		sec.key = t.Secret
	}
	return sec
}

// dataSecret is that of a data connection.
func dataSecret(k transport.DataKey) shared {
	return shared{key: k[:], client: labelDataClient, server: labelDataServer, differs: ErrDataKey}
}

// sessionKey proves that a connection resumes a session, and that a connection is left by the
// one that made it. It comes from the exporter and the nonces of the session's first connection,
// so that a peer which has the token too, and was not there, cannot know it.
type sessionKey [sha256.Size]byte

func mac(key []byte, label string, parts ...[]byte) [sha256.Size]byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(label))
	for _, p := range parts {
		m.Write(p)
	}
	var out [sha256.Size]byte
	m.Sum(out[:0])
	return out
}

func equal(a, b [proofSize]byte) bool { return hmac.Equal(a[:], b[:]) }

// transcript is the channel of a handshake and its packets as they were on the wire.
type transcript struct {
	exporter             exporter
	hello, answer, proof []byte
}

func (t *transcript) mac(key []byte, label string, parts ...[]byte) [sha256.Size]byte {
	return mac(key, label, append([][]byte{t.exporter[:], t.hello, t.answer}, parts...)...)
}

func (t *transcript) clientProof(sec shared) [proofSize]byte { return t.mac(sec.key, sec.client) }

func (t *transcript) resumeProof(key sessionKey) [proofSize]byte { return t.mac(key[:], labelResume) }

// serverProof is over the welcome without its proof, which it leaves in place. Where a session
// goes on it is over its key as well: not everybody with the token may go on with it.
func (t *transcript) serverProof(sec shared, welcome, resumed []byte) [proofSize]byte {
	var zero [proofSize]byte
	return t.mac(sec.key, sec.server, t.proof,
		welcome[:welcomeProofAt], zero[:], welcome[welcomeProofAt+proofSize:], resumed)
}

func (t *transcript) key(sec shared) sessionKey { return t.mac(sec.key, labelSession) }

// random fills b; crypto/rand does not fail.
func random(b []byte) { _, _ = rand.Read(b) }
