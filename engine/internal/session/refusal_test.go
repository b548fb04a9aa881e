package session

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/trust"
)

// What is refused is counted exactly and seen in the log, which strangers can neither fill
// nor write to.
func TestRefusalsAreSeen(t *testing.T) {
	ln := newPipes()
	var log bytes.Buffer // the server's mutex guards it
	s := Serve([]net.Listener{ln}, ServerOptions{
		Identity: Identity{Name: "the host", Credentials: trust.Secret(secret)}, Limits: Limits{UnauthenticatedConns: 2_000}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	const tries = 200
	wrong := []byte("fedcba9876543210")
	bad := &trust.Token{Secret: wrong}
	h := controlHello(Identity{Name: "aname"}, Limits{}.withDefaults(), transport.SessionID{1}, bad)
	for range tries {
		c := ln.dial()
		if _, err := dialHandshake(begun(t, c), h, tokenSecret(bad), sessionKey{}); !errors.Is(err, ErrToken) {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	stranger := ln.dial()
	_, _ = stranger.Write([]byte("GET / HTTP/1.1\r\nHost: evil\r\n\r\n" + strings.Repeat("x", 200)))
	gone(t, stranger)
	_ = s.Close()
	counts := s.Counts()
	if counts.Refused[RefusedToken] != tries || counts.Refused[RefusedMalformed] != 1 || len(counts.Refused) != len(refusals) {
		t.Errorf("%+v", counts)
	}
	lines := strings.Count(log.String(), "\n")
	if lines < 2 || lines > 4 {
		t.Errorf("%d lines:\n%s", lines, log.String())
	}
	s.refused.Tell(time.Now().Add(refusalPause)) // as watch does
	said := 0
	for _, m := range regexp.MustCompile(`reason="its token is not ours" count=(\d+) last_from=pipe`).FindAllStringSubmatch(log.String(), -1) {
		n, _ := strconv.Atoi(m[1])
		said += n
	}
	if said != tries {
		t.Errorf("the log says %d of %d:\n%s", said, tries, log.String())
	}
	for _, secret := range []string{string(secret), string(wrong), "name", "evil", fmt.Sprintf("%x", secret)} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log has %q:\n%s", secret, log.String())
		}
	}
	before := log.Len()
	if s.refused.Tell(time.Now().Add(time.Hour)); log.Len() != before {
		t.Errorf("a line about nothing:\n%s", log.String())
	}
}

// A connection that has been handed to its session does not make room for others.
func TestHandedOverIsNotEvicted(t *testing.T) {
	synctest.Test(t, testHandedOverIsNotEvicted)
}

func testHandedOverIsNotEvicted(t *testing.T) {
	const authTime = time.Second
	ln := newPipes()
	held, handOver := make(chan net.Conn), make(chan struct{})
	s := Serve([]net.Listener{ln}, ServerOptions{
		Limits: Limits{UnauthenticatedConns: 1, AuthTime: authTime},
		DataKey: func(transport.SessionID, transport.ConnID) (transport.DataKey, bool) {
			return transport.DataKey{1}, true
		},
		Data: func(_ transport.SessionID, _ transport.ConnID, _ string, c net.Conn) error {
			held <- c
			<-handOver
			return nil
		},
	})
	defer s.Close()
	enter(t, ln, Limits{})
	data := ln.dial()
	defer data.Close()
	h := controlHello(Identity{Name: "x"}, Limits{}.withDefaults(), transport.SessionID{1}, nil)
	h.kind, h.conn, h.messageBytes, h.calls = kindData, 7, 0, 0
	if _, err := dialHandshake(data, h, dataSecret(transport.DataKey{1}), sessionKey{}); err != nil {
		t.Fatal(err)
	}
	theirs := <-held
	time.Sleep(authTime / 10) // it would have had its chance
	knocking := ln.dial()
	defer knocking.Close()
	// The hello is read once the server has looked for room.
	_, _ = knocking.Write(h.encode())
	close(handOver)
	go func() { _, _ = theirs.Write([]byte("x")) }()
	_ = data.SetReadDeadline(time.Now().Add(30 * time.Second))
	if n, err := data.Read(make([]byte, 1)); n != 1 {
		t.Errorf("the data connection was closed: %v", err)
	}
	_ = theirs.Close()
}

// A dialler that has proven to be of a session does not get the one that took its ID
// meanwhile.
func TestResumeOfAnotherSession(t *testing.T) {
	ln := newPipes()
	s := Serve([]net.Listener{ln}, ServerOptions{Identity: Identity{Epoch: 3}})
	defer s.Close()
	h := controlHello(Identity{Name: "x"}, Limits{}.withDefaults(), transport.SessionID{1}, nil)
	begin := func(c net.Conn) established {
		got, err := dialHandshake(c, h, tokenSecret(nil), sessionKey{})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(encode(message{kind: msgSync, number: 1}))
		if m, err := readMessage(c, someBounds); err != nil || m.kind != msgSync {
			t.Fatal(m, err)
		}
		return got
	}
	first := ln.dial()
	key := begin(first).key
	late := ln.dial()
	resume := h
	resume.resume, resume.peerEpoch = true, 3
	if _, err := dialHandshake(late, resume, tokenSecret(nil), key); err != nil {
		t.Fatal(err)
	}
	_, _ = first.Write(encode(message{kind: msgBye}))
	gone(t, first)
	second := ln.dial()
	defer second.Close()
	for until := time.Now().Add(30 * time.Second); s.Counts().Sessions > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the first session is not over")
		}
	}
	begin(second)
	_, _ = late.Write(encode(message{kind: msgSync, number: 2}))
	if said := gone(t, late); len(said) > 0 {
		t.Errorf("it was told %x", said)
	}
	ping := message{kind: msgPing, number: 5}
	_, _ = second.Write(encode(ping))
	if m, err := readMessage(second, bounds{}); err != nil || m.kind != msgPong {
		t.Errorf("the session that has the ID: %v, %v", m, err)
	}
}
