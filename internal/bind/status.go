package bind

import (
	"context"
	"errors"
	"syscall"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/bind/mooncake"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Status says how a call or a batch ended, as topoctl_status of topoctl.h does.
type Status int32

// The values of topoctl_status, which stands in topoctl.h with what each means.
const (
	OK       Status = 0
	Done     Status = 1
	Failed   Status = -1
	Invalid  Status = -2
	NoHandle Status = -3
	Timeout  Status = -4
	Unsafe   Status = -5
	NoPeer   Status = -6
	PeerLost Status = -7
	NoRegion Status = -8
	Canceled Status = -9
	Exists   Status = -10
	Limit    Status = -11
	Forked   Status = -12
	Internal Status = -13
	Refused  Status = -14
	NoMemory Status = -15
)

// Error is an error of this package's own: those of the engine have their types.
type Error struct {
	Status Status
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

func fail(s Status, format string, args ...any) error {
	return &Error{s, pkgerr.Errorf("bind", format, args...)}
}

// statuses are the engine's errors, those first that decide where an error is several.
var statuses = []struct {
	err    error
	status Status
}{
	{engine.ErrUnsafeBuffer, Unsafe},
	{engine.ErrQuarantined, Unsafe},
	{engine.ErrPeerRestarted, PeerLost},
	{engine.ErrPeerLost, PeerLost},
	{engine.ErrNoRegion, NoRegion},
	{engine.ErrRange, NoRegion},
	{engine.ErrDenied, NoRegion},
	{engine.ErrOverlap, Invalid},
	{engine.ErrLimit, Limit},
	{engine.ErrCanceled, Canceled},
	{engine.ErrClosed, Canceled},
	{context.DeadlineExceeded, Timeout},
	{engine.ErrUnreachable, NoPeer},
	{engine.ErrToken, NoPeer},
	{engine.ErrCertificate, NoPeer},
	{engine.ErrNoPeer, NoPeer},
	{syscall.ENOMEM, NoMemory},
	{mooncake.ErrNoRange, NoRegion},
	{mooncake.ErrClosed, Canceled},
	{mooncake.ErrNoPeer, NoPeer},
}

// StatusOf gives the status of an error.
func StatusOf(err error) Status {
	if err == nil {
		return OK
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Status
	}
	for _, s := range statuses {
		if errors.Is(err, s.err) {
			return s.status
		}
	}
	return Failed
}
