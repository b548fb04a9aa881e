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

	"github.com/topoctl/topoctl/engine/trust"
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

// routeError is what became of one route.
type routeError struct {
	route Route
	err   error
}

func (e routeError) Error() string {
	err := e.err
	switch op, isOp := errors.AsType[*net.OpError](err); {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return e.route.String() + ": no answer in time"
	case isOp && op.Op == "dial": // it has the addresses once more
		err = op.Err
		if call, ok := errors.AsType[*os.SyscallError](err); ok {
			err = call.Err
		}
	}
	return fmt.Sprintf("%s: %v", e.route, err)
}

func (e routeError) Unwrap() error { return e.err }

// ranked are errors by how much they say: a peer's own words more than those of its host, and those more than the
// network's, which nil stands for.
var ranked = []error{ErrRestarted, ErrEnded, ErrLimit, ErrToken, trust.ErrCertificate, ErrVersion, errBusy, errCut, syscall.ECONNREFUSED, nil, ErrOtherEngine}

// rank is the place in ranked, for loopback after all others: every host has it, and refuses there.
func (e routeError) rank() int {
	rank := slices.IndexFunc(ranked, func(known error) bool { return errors.Is(e.err, known) })
	if rank < 0 {
		rank = slices.Index(ranked, nil)
	}
	if e.route.Remote.Addr().IsLoopback() {
		rank += len(ranked)
	}
	return rank
}

// routeErrors say of all routes to a peer what became of them, what says most first. By errors.Is they are what the
// first of them is, and ErrUnreachable where no engine has said what is wrong.
type routeErrors []routeError

func (n routeErrors) sort() {
	slices.SortStableFunc(n, func(a, b routeError) int { return a.rank() - b.rank() })
}

const maxRoutesInText = 8

func (n routeErrors) Error() string {
	var texts []string
	for _, e := range n[:min(len(n), maxRoutesInText)] {
		texts = append(texts, e.Error())
	}
	if more := len(n) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d other addresses", more))
	}
	text := strings.Join(texts, "; ")
	if len(n.Unwrap()) > 1 {
		text = ErrUnreachable.Error() + ": " + text
	}
	return text
}

func (n routeErrors) Unwrap() []error {
	if known := ranked[n[0].rank()%len(ranked)]; known == nil || errors.Is(known, syscall.ECONNREFUSED) {
		return []error{ErrUnreachable, n[0]}
	}
	return []error{n[0]}
}
