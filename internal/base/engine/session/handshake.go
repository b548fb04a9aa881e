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
	"time"

	"github.com/topoctl/topoctl/internal/base/engine/transport"
)

// readPacket reads a packet of the handshake: a head whose last two bytes say
// how much follows. Not a byte more is read, what comes next is not ours.
func readPacket(r io.Reader, head int) ([]byte, error) {
	b := make([]byte, head, 256)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	if head == helloHead && string(b[:len(magic)]) != magic {
		return nil, &notEngine{b}
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

// notEngine is ErrNotEngine with the bytes that came.
type notEngine struct{ first []byte }

func (*notEngine) Error() string { return ErrNotEngine.Error() }
func (*notEngine) Unwrap() error { return ErrNotEngine }

// established is what the dialling side knows after a handshake.
type established struct {
	conn    net.Conn
	route   Route
	welcome welcome
	key     sessionKey
	trip    time.Duration
}

// dialHandshake does the dialling side of the handshake. key is the session's where the
// hello resumes one. The caller has set the connection's deadline.
func dialHandshake(c net.Conn, h hello, token []byte, key sessionKey) (established, error) {
	out := established{conn: c}
	h.min, h.max, h.features = minVersion, maxVersion, ourFeatures
	h.token = len(token) > 0
	random(h.nonce[:])
	t := transcript{hello: h.encode()}
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
	if err := checkAnswer(&a, h.token); err != nil {
		return out, err
	}
	p := proof{token: t.clientProof(token), hasResume: h.resume}
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
		return out, ErrToken
	}
	if !equal(out.welcome.proof, t.serverProof(token, packet)) {
		return out, fmt.Errorf("%w: the peer could not prove that it has ours", ErrToken)
	}
	out.key = t.key(token)
	return out, checkWelcome(&out.welcome)
}

// checkAnswer is about what the server said before it was proven who it is.
func checkAnswer(a *answer, token bool) error {
	switch a.status {
	case statusOK, statusToken:
	case statusVersion:
		return fmt.Errorf("%w: the peer speaks %d to %d, we %d to %d", ErrVersion, a.min, a.max, minVersion, maxVersion)
	case statusBusy:
		return errBusy
	default:
		return fmt.Errorf("%w: status %d", errMalformed, a.status)
	}
	switch {
	case a.token && !token:
		return fmt.Errorf("%w: the peer asks for a token, none is set here", ErrToken)
	case !a.token && token:
		return fmt.Errorf("%w: a token is set here, the peer has none", ErrToken)
	case a.status != statusOK:
		return ErrToken
	}
	return nil
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
	errCut  = errors.New("peer closed the connection during the handshake; is it a topoctl engine?")
)

func handshakeError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || isReset(err) {
		return errCut
	}
	return err
}

// arrival is a connection in its handshake, seen from the server.
type arrival struct {
	conn  net.Conn
	hello hello
	t     transcript
	key   sessionKey
	proof proof
}

// acceptHandshake does the server's side up to the point where the dialler has proven that
// it has the token.
func acceptHandshake(c net.Conn, id *Identity) (*arrival, error) {
	a := &arrival{conn: c}
	var err error
	if a.t.hello, err = readPacket(c, helloHead); err != nil {
		return nil, err
	}
	if a.hello, err = parseHello(a.t.hello); err != nil {
		return nil, err
	}
	ans := answer{min: minVersion, max: maxVersion, version: a.hello.version(), token: len(id.Token) > 0}
	ans.features = a.hello.features & ourFeatures
	random(ans.nonce[:])
	switch {
	case ans.version == 0:
		ans.status = statusVersion
	case a.hello.token != ans.token:
		ans.status = statusToken
	}
	a.t.answer = ans.encode()
	if _, err := c.Write(a.t.answer); err != nil {
		return nil, err
	}
	switch ans.status {
	case statusVersion:
		return nil, refused{RefusedVersion}
	case statusToken:
		return nil, refused{RefusedToken}
	}
	if a.t.proof, err = readPacket(c, 2); err != nil {
		return nil, err
	}
	if a.proof, err = parseProof(a.t.proof, a.hello.resume); err != nil {
		return nil, err
	}
	if !equal(a.proof.token, a.t.clientProof(id.Token)) {
		// No proof of ours and no name: a peer without the token learns nothing.
		w := welcome{status: statusToken}
		_, _ = c.Write(w.encode())
		return nil, refused{RefusedToken}
	}
	a.key = a.t.key(id.Token)
	return a, nil
}

// reply ends the handshake.
func (a *arrival) reply(id *Identity, l Limits, st status) error {
	w := welcome{
		status: st, epoch: id.Epoch, name: id.Name,
		messageBytes: uint32(l.MessageBytes), calls: uint32(l.CallsInFlight),
	}
	b := w.encode()
	p := a.t.serverProof(id.Token, b)
	copy(b[welcomeProofAt:], p[:])
	_, err := a.conn.Write(b)
	return err
}

// resumes says whether the arrival proves that it is the session's own dialler.
func (a *arrival) resumes(key sessionKey) bool {
	return equal(a.proof.resume, a.t.resumeProof(key))
}

func controlHello(id Identity, l Limits, session transport.SessionID) hello {
	return hello{
		kind: kindControl, epoch: id.Epoch, session: session, name: id.Name,
		messageBytes: uint32(l.MessageBytes), calls: uint32(l.CallsInFlight),
	}
}

// What a MAC is for goes into it, so that none can be used as another.
const (
	labelClient  = "topoctl/1 client\x00"
	labelServer  = "topoctl/1 server\x00"
	labelSession = "topoctl/1 session key\x00"
	labelResume  = "topoctl/1 resume\x00"
)

// sessionKey proves that a connection resumes a session. It comes from the
// nonces of the session's first connection, so that a peer which has the token
// too, and was not there, cannot know it.
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

// transcript is the packets of a handshake as they were on the wire.
type transcript struct{ hello, answer, proof []byte }

func (t *transcript) clientProof(token []byte) [proofSize]byte {
	return mac(token, labelClient, t.hello, t.answer)
}

func (t *transcript) resumeProof(key sessionKey) [proofSize]byte {
	return mac(key[:], labelResume, t.hello, t.answer)
}

// serverProof is over the welcome without its proof, which it leaves in place.
func (t *transcript) serverProof(token, welcome []byte) [proofSize]byte {
	var zero [proofSize]byte
	return mac(token, labelServer, t.hello, t.answer, t.proof,
		welcome[:welcomeProofAt], zero[:], welcome[welcomeProofAt+proofSize:])
}

func (t *transcript) key(token []byte) sessionKey {
	return mac(token, labelSession, t.hello, t.answer)
}

// random fills b; crypto/rand does not fail.
func random(b []byte) { _, _ = rand.Read(b) }
