package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/topoctl/topoctl/internal/base/engine/transport"
)

// The calls between engines, over a session. docs/wire.md specifies them.
const (
	methodDescribe uint16 = 1 // asked by whoever dialled; the answer is a descriptor, deltas follow
	methodDelta    uint16 = 2 // the other way
	methodAccept   uint16 = 3
	methodLeave    uint16 = 4
	methodNotify   uint16 = 5
	methodAsk      uint16 = 6 // of the application; the body is its own
)

var errMalformed = errors.New("malformed call")

// acceptBody: length of the transport's name, the name, the connection, the
// transport's own request.
func acceptBody(name string, conn transport.ConnID, request []byte) []byte {
	b := make([]byte, 0, 1+len(name)+8+len(request))
	b = append(append(b, byte(len(name))), name...)
	b = binary.BigEndian.AppendUint64(b, uint64(conn))
	return append(b, request...)
}

func parseAccept(b []byte) (name string, conn transport.ConnID, request []byte, err error) {
	name, b, err = parseName(b)
	if err != nil || len(b) < 8 {
		return "", 0, nil, fmt.Errorf("accept: %w", errMalformed)
	}
	return name, transport.ConnID(binary.BigEndian.Uint64(b)), b[8:], nil
}

// leaveBody: length of the transport's name, the name, the session of the
// connection, the connection. Knowing the session is what entitles to this, so
// that an engine that opens a peer again can fence what it had before.
func leaveBody(name string, session transport.SessionID, conn transport.ConnID) []byte {
	b := make([]byte, 0, 1+len(name)+len(session)+8)
	b = append(append(b, byte(len(name))), name...)
	b = append(b, session[:]...)
	return binary.BigEndian.AppendUint64(b, uint64(conn))
}

func parseLeave(b []byte) (name string, session transport.SessionID, conn transport.ConnID, err error) {
	name, b, err = parseName(b)
	if err != nil || len(b) != len(session)+8 {
		return "", session, 0, fmt.Errorf("leave: %w", errMalformed)
	}
	copy(session[:], b)
	return name, session, transport.ConnID(binary.BigEndian.Uint64(b[len(session):])), nil
}

func parseName(b []byte) (string, []byte, error) {
	if len(b) == 0 || len(b) < 1+int(b[0]) {
		return "", nil, errMalformed
	}
	n := 1 + int(b[0])
	return string(b[1:n]), b[n:], nil
}

// notifyBody: how long the peer's application may take to make room, in
// nanoseconds, then the payload.
func notifyBody(wait time.Duration, payload []byte) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(payload)), uint64(max(wait, 0)))
	return append(b, payload...)
}

func parseNotify(b []byte) (wait time.Duration, payload []byte, err error) {
	if len(b) < 8 || len(b) > 8+maxNotify {
		return 0, nil, fmt.Errorf("notify: %w", errMalformed)
	}
	ns := binary.BigEndian.Uint64(b)
	return time.Duration(min(ns, uint64(maxNotifyWait))), b[8:], nil
}

// maxNotifyWait is how long a notification waits for room at most.
const maxNotifyWait = time.Minute
