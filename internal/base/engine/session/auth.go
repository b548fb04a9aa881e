package session

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
)

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
