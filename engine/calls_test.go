package engine

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/topoctl/topoctl/internal/base/engine/transport"
)

func TestCallBodies(t *testing.T) {
	name, conn, request, err := parseAccept(acceptBody("tcp", 7, []byte("hello")))
	if name != "tcp" || conn != 7 || string(request) != "hello" || err != nil {
		t.Error(name, conn, request, err)
	}
	id := transport.SessionID{1, 2, 3, 15: 9}
	name, session, conn, err := parseLeave(leaveBody("shm", id, 1<<63))
	if name != "shm" || session != id || conn != 1<<63 || err != nil {
		t.Error(name, session, conn, err)
	}
	wait, payload, err := parseNotify(notifyBody(time.Second, []byte("x")))
	if wait != time.Second || string(payload) != "x" || err != nil {
		t.Error(wait, payload, err)
	}
	if wait, _, err := parseNotify(bytes.Repeat([]byte{0xff}, 8)); wait != maxNotifyWait || err != nil {
		t.Errorf("an endless wait: %v, %v", wait, err)
	}
	for _, bad := range [][]byte{nil, {3}, {3, 't', 'c', 'p'}, {0, 1, 2, 3}, make([]byte, 9+maxNotify)} {
		if _, _, _, err := parseAccept(bad[:min(len(bad), 5)]); !errors.Is(err, errMalformed) {
			t.Errorf("accept %v: %v", bad, err)
		}
		if _, _, _, err := parseLeave(bad); !errors.Is(err, errMalformed) {
			t.Errorf("leave %v: %v", bad, err)
		}
		if _, _, err := parseNotify(bad); !errors.Is(err, errMalformed) {
			t.Errorf("notify %v: %v", bad, err)
		}
	}
}

func FuzzCalls(f *testing.F) {
	f.Add(acceptBody("tcp", 1, []byte("x")))
	f.Add(leaveBody("tcp", transport.SessionID{}, 1))
	f.Add(notifyBody(1, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if name, conn, request, err := parseAccept(b); err == nil && !bytes.Equal(acceptBody(name, conn, request), b) {
			t.Errorf("accept %x", b)
		}
		if name, session, conn, err := parseLeave(b); err == nil && !bytes.Equal(leaveBody(name, session, conn), b) {
			t.Errorf("leave %x", b)
		}
		if wait, payload, err := parseNotify(b); err == nil && (wait < 0 || wait > maxNotifyWait || len(payload) > maxNotify) {
			t.Errorf("notify %x: %v, %d bytes", b, wait, len(payload))
		}
	})
}
