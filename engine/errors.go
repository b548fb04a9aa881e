package engine

import (
	"context"
	"errors"
	"fmt"

	mem "github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/session"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/internal/sched"
	"github.com/topoctl/topoctl/pathsel"
)

// The reasons why calls are refused and transfers fail. The errors that wrap them say
// what failed, where, and what to do about it.
var (
	// ErrClosed: the engine, the peer or the region was closed by its user.
	ErrClosed = errors.New("closed")
	// ErrUnsafeBuffer: the batch is over, and bytes of it may still reach the peer's
	// memory, because a dead connection could not be fenced in time. The local
	// buffers are free; the remote ranges are quarantined.
	ErrUnsafeBuffer = errors.New("bytes may still land in the peer's memory")
	// ErrQuarantined: a remote range is in the state that ErrUnsafeBuffer describes.
	ErrQuarantined = errors.New("quarantined")
	// ErrPeerLost: the peer closed the session, could not be reached for Options.GiveUp, or is
	// not there any more: its host refuses connections. Errors of that kind, and ErrUnreachable
	// where Open meets it, wrap syscall.ECONNREFUSED.
	ErrPeerLost = errors.New("peer is lost")
	// ErrPeerRestarted: another engine answers where the peer's did, mostly because that was
	// restarted; open it again.
	ErrPeerRestarted = errors.New("peer was restarted")
	// ErrUnreachable: no address of the peer answered.
	ErrUnreachable = session.ErrUnreachable
	// ErrToken: the peer has a different token, or only one side has one.
	ErrToken = session.ErrToken
	// ErrWithdrawn: the peer does not accept the token, or the CA of the certificate, any more with
	// which it was opened. It comes with ErrPeerLost.
	ErrWithdrawn = session.ErrWithdrawn
	// ErrCertificate: a certificate is missing or not accepted, that of the peer or ours.
	ErrCertificate = trust.ErrCertificate
	// ErrNotEngine: what answers at the address is no engine.
	ErrNotEngine = session.ErrNotEngine
	// ErrPeerEnded: the peer closed the session. It comes with ErrPeerLost.
	ErrPeerEnded = session.ErrEnded
	// ErrNoPeer: the registry has no engine of that name.
	ErrNoPeer = registry.ErrNotFound
	// ErrOtherEngine: at the addresses that are known of an engine there is another one.
	ErrOtherEngine = session.ErrOtherEngine
	// ErrNoRegion: the peer does not offer such a region.
	ErrNoRegion = mem.ErrNoRegion
	// ErrRange: the bytes are outside the region.
	ErrRange = mem.ErrRange
	// ErrDenied: the region's grant does not allow it.
	ErrDenied = mem.ErrDenied
	// ErrOverlap: two ops of a batch may write the same bytes, or one reads what
	// another writes; or ranges that are registered together do.
	ErrOverlap = mem.ErrOverlap
	// ErrNoLane: nothing reaches the peer, or no lane has that name.
	ErrNoLane = errors.New("no lane")
	// ErrUnavailable: this host does not support the transport; the engine works without it.
	ErrUnavailable = transport.ErrUnavailable
	// ErrDigest: the bytes of a batch are not the same here and at the peer after they were moved
	// (CheckDigest): they were changed on the way, or written to meanwhile. It is not known
	// which are right; nothing of the batch lands any more.
	ErrDigest = errors.New("the bytes here and those of the peer differ: they were changed on the way, or written to meanwhile")
	// ErrInvalid: the call is wrong as it is, whatever the peer does: an option or an op that does not fit, a region
	// of another engine. There is no use in trying again.
	ErrInvalid = errors.New("invalid")
	// ErrLimit: it is more than the engine's limits allow.
	ErrLimit = session.ErrCallLimit
	// ErrCanceled: the batch was cancelled by Cancel.
	ErrCanceled = errors.New("cancelled")
)

var errEngineClosed = fmt.Errorf("engine is %w", ErrClosed)

// NotOfferedError names the transports that the peer does not offer, where an error came about because of that.
type NotOfferedError struct {
	Transports []pathsel.Transport
	Err        error
}

func (e *NotOfferedError) Error() string { return e.Err.Error() }

func (e *NotOfferedError) Unwrap() error { return e.Err }

// OpError says which op of a batch is at fault.
type OpError struct {
	Op  int // place in the batch
	Err error
}

func (e *OpError) Error() string { return fmt.Sprintf("op %d: %v", e.Op, e.Err) }

func (e *OpError) Unwrap() error { return e.Err }

// LaneError says on which lane to which peer an error occurred. Its text does not name
// the peer, because the errors that wrap it do.
type LaneError struct {
	Lane string
	Peer string
	Err  error
}

func (e *LaneError) Error() string {
	return fmt.Sprintf("lane %s: %v", e.Lane, e.Err)
}

func (e *LaneError) Unwrap() error { return e.Err }

// errorOf gives the scheduler's error of a part the engine's types and words.
func (e *Engine) errorOf(p *part, err error) error {
	var also []error
	if errors.Is(err, sched.ErrDeadline) {
		also = append(also, context.DeadlineExceeded)
	}
	if errors.Is(err, sched.ErrUnsafe) {
		also = append(also, ErrUnsafeBuffer)
	}
	if errors.Is(err, sched.ErrNoLane) {
		also = append(also, ErrNoLane)
	}
	peer := p.batch.peer.name
	var op *sched.OpError
	if errors.As(err, &op) {
		mine := &OpError{Op: p.userOp(op.First), Err: &LaneError{Lane: op.Lane, Peer: peer, Err: op.Err}}
		if len(also) == 0 {
			return mine
		}
		also = append(also, mine)
	}
	var lane *sched.LaneError
	if errors.As(err, &lane) {
		also = append(also, &LaneError{Lane: lane.Lane, Peer: peer, Err: lane.Err})
	}
	if len(also) == 0 {
		return err
	}
	return &knownError{err, also}
}

// knownError is an error that is also others: they are found by errors.Is and As,
// and its text is not repeated for them.
type knownError struct {
	err  error
	also []error
}

// invalid is the error of a call that can never succeed as it is.
func invalid(format string, args ...any) error {
	return &knownError{fmt.Errorf(format, args...), []error{ErrInvalid}}
}

func (e *knownError) Error() string { return e.err.Error() }

func (e *knownError) Unwrap() []error { return append([]error{e.err}, e.also...) }
