// Package mooncake speaks the classic protocol of Mooncake's transfer engine over TCP, from both
// ends: stock Mooncake processes read and write memory of this process, and this one theirs.
//
// The protocol has three parts. Descriptors, in JSON, say at which absolute addresses a segment (a
// process) offers memory, and at which port. They are asked of the segment itself, in a handshake
// frame, or of an HTTP server of keys and values. Data goes over connections of its own: a header
// of 24 bytes names an address, a length and READ or WRITE, and the bytes follow as they are.
//
// Nothing in it is authenticated, encrypted or checked: all that reach the ports read and write
// all memory that is offered. All that peers send is hostile until checked, and memory is only
// touched through Memory, whose owner checks every range.
package mooncake

import (
	"errors"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Why a transfer or a call fails. Errors that wrap them say which peer and range.
var (
	// ErrMalformed: the other side does not follow the protocol.
	ErrMalformed = errors.New("not Mooncake's protocol")
	// ErrNoPeer: nothing answers for the segment, or no such name is known.
	ErrNoPeer = errors.New("no such peer")
	// ErrNoRange: the peer does not offer the range, or refuses it.
	ErrNoRange = errors.New("the peer does not offer the range")
	// ErrUnconfirmed: bytes were sent, and the peer has not said that it has them. They may be in
	// place, or still land.
	ErrUnconfirmed = errors.New("the peer has not confirmed what was written")
	// ErrRefused: the peer does not take the notification.
	ErrRefused = errors.New("refused by the peer")
	// ErrClosed: the node was closed.
	ErrClosed = errors.New("closed")
)

func errorf(format string, args ...any) error { return pkgerr.Errorf("mooncake", format, args...) }
