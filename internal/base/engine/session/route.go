package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/topoctl/topoctl/internal/base/engine/trust"
)

// Route is a way to dial: our address (invalid: any) and the peer's.
type Route struct {
	Local     netip.Addr
	Interface string
	Remote    netip.AddrPort
}

// String names the route for messages.
func (r Route) String() string {
	s := r.Remote.String()
	if r.Local.IsValid() {
		s += " from " + r.Local.String()
	}
	if r.Interface != "" {
		s += " (" + r.Interface + ")"
	}
	return s
}

// RouteError is what became of one route.
type RouteError struct {
	Route Route
	Err   error
}

func (e RouteError) Error() string {
	err := e.Err
	switch op, isOp := errors.AsType[*net.OpError](err); {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return e.Route.String() + ": no answer in time"
	case isOp && op.Op == "dial": // it has the addresses once more
		err = op.Err
		if call, ok := errors.AsType[*os.SyscallError](err); ok {
			err = call.Err
		}
	}
	return fmt.Sprintf("%s: %v", e.Route, err)
}

func (e RouteError) Unwrap() error { return e.Err }

// RoutesError says of all routes to a peer what became of them. It is, by errors.Is, what the
// first of them is, and ErrUnreachable where that is an error of the network.
type RoutesError struct {
	Routes []RouteError // what says most comes first, loopback last
}

// noRoute is the error of routes that all failed.
func noRoute(failed []RouteError) error {
	slices.SortStableFunc(failed, func(a, b RouteError) int { return a.rank() - b.rank() })
	return &RoutesError{failed}
}

// words are a peer's own, which say more than those of its host, and those than the network's.
var words = []error{ErrRestarted, ErrEnded, ErrLimit, ErrToken, trust.ErrCertificate, ErrVersion, errBusy, errCut}

const loopbackRank = 100

func (e RouteError) rank() int {
	rank := slices.IndexFunc(words, func(w error) bool { return errors.Is(e.Err, w) })
	switch {
	case rank >= 0:
	case errors.Is(e.Err, syscall.ECONNREFUSED):
		rank = len(words)
	case errors.Is(e.Err, ErrOtherEngine):
		rank = len(words) + 2
	default:
		rank = len(words) + 1
	}
	if e.Route.Remote.Addr().IsLoopback() { // every host has it, and refuses there
		rank += loopbackRank
	}
	return rank
}

// unreachable says whether no engine has said what is wrong.
func (e *RoutesError) unreachable() bool {
	rank := e.Routes[0].rank() % loopbackRank
	return rank == len(words) || rank == len(words)+1
}

const maxToldRoutes = 8

func (e *RoutesError) Error() string {
	var b strings.Builder
	if e.unreachable() {
		b.WriteString(ErrUnreachable.Error() + ": ")
	}
	for i := range e.Routes {
		switch {
		case i == maxToldRoutes:
			fmt.Fprintf(&b, "; and %d other addresses", len(e.Routes)-i)
			return b.String()
		case i > 0:
			b.WriteString("; ")
		}
		b.WriteString(e.Routes[i].Error())
	}
	return b.String()
}

func (e *RoutesError) Unwrap() []error {
	if e.unreachable() {
		return []error{ErrUnreachable, e.Routes[0]}
	}
	return []error{e.Routes[0]}
}
