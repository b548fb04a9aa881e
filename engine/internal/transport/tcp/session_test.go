package tcp

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/session"
	"github.com/topoctl/topoctl/engine/internal/session/sessiontest"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

// TestOverSession makes a connection as engines do: the offer goes over a session,
// the connection through its server, with a token.
func TestOverSession(t *testing.T) {
	for level, last := range map[transport.Protection]string{
		transport.Headers: ", AES-GMAC headers, crc32 if asked for", transport.Payload: ", AES-GMAC headers and payload", transport.Sealed: ", TLS 1.3",
	} {
		t.Run(level.String(), func(t *testing.T) { overSession(t, level, last) })
	}
}

func overSession(t *testing.T, level transport.Protection, last string) {
	token := []byte("a token of more than 16 bytes")
	b := newSide(t, Options{Protection: level})
	pair := sessiontest.Connect(t, sessiontest.Options{
		Token: token,
		Served: func(ctx context.Context, s *session.Session, conn uint16, body []byte) ([]byte, error) {
			return b.Accept(ctx, transport.Origin{Session: s.ID(), Conn: transport.ConnID(conn)}, body)
		},
		Server: session.ServerOptions{Data: b.Serve, DataKey: b.Key},
	})
	a := newSide(t, Options{Identity: pair.Client})
	mine := a.region(t, 1<<20, memory.None, memory.Options{})
	theirs := b.region(t, 1<<20, both, memory.Options{})
	fillRandom(bytesOf(mine), 1)
	c := newClient()
	d := transport.Dial{
		Session: pair.Dialled.ID(), Conn: 7, Remote: transport.Endpoint{Transport: "tcp", Address: pair.Addr.String()},
		Exchange: func(ctx context.Context, request []byte) ([]byte, error) { return pair.Dialled.Call(ctx, 7, request) },
		Events:   c.events(),
	}
	var err error
	if c.Conn, err = a.Dial(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if x := c.do(t, request(transport.Write, mine, 0, remote(theirs), 0, 1<<20)); x.Err != nil || !bytes.Equal(bytesOf(mine), bytesOf(theirs)) {
		t.Errorf("completion %+v", x)
	}
	if s := c.Describe(); !strings.HasPrefix(s, "tcp 127.0.0.1:") || !strings.Contains(s, " > "+pair.Addr.String()+", ") || !strings.HasSuffix(s, last) {
		t.Errorf("described as %q", s)
	}
	if _, err := a.Dial(t.Context(), d); err == nil {
		t.Error("one connection was let in twice")
	}
	if err := b.LeaveAll(t.Context(), pair.Dialled.ID()); err != nil {
		t.Error(err)
	}
	if err := c.gone(t); err == nil {
		t.Error("the peer left, and the connection is lost without an error")
	}
}
