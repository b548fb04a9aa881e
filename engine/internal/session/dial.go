package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/topoctl/topoctl/engine/internal/peertls"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

const (
	maxRoutes = 64
	// stagger is the head start that a route has over the next one.
	stagger = 10 * time.Millisecond
	// maxBusyRetries are of handshakes with a peer that is busy, or cuts them off.
	maxBusyRetries = 6
)

// Dial connects and authenticates; ctx bounds that.
func Dial(ctx context.Context, o DialOptions) (*Session, error) {
	o = o.withDefaults()
	s, err := retryBusy(ctx, func() (*Session, error) { return dialOnce(ctx, o) })
	if err != nil {
		return nil, pkgerr.Errorf("session", "%w", err)
	}
	return s, nil
}

// retryBusy dials again, after longer and longer pauses, while the peer is busy.
func retryBusy[T any](ctx context.Context, dial func() (T, error)) (T, error) {
	var said error // that the peer is busy
	for pause, try := 10*time.Millisecond, 0; ; pause, try = pause*2, try+1 {
		out, err := dial()
		switch {
		case errors.Is(err, errBusy):
			said = err
		case errors.Is(err, errCut) && said != nil:
			err = said // it may be so still
		}
		if busy := errors.Is(err, errBusy) || errors.Is(err, errCut); !busy || try == maxBusyRetries {
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, fmt.Errorf("%w (%w)", err, ctx.Err())
		case <-time.After(pause):
		}
	}
}

func (o DialOptions) withDefaults() DialOptions {
	o.Identity = o.Identity.complete()
	o.Limits = o.Limits.withDefaults()
	o.Silence = cmp.Or(o.Silence, 50*time.Millisecond)
	o.GiveUp = cmp.Or(o.GiveUp, 10*time.Second)
	return o
}

func dialOnce(ctx context.Context, o DialOptions) (*Session, error) {
	var id transport.SessionID
	random(id[:])
	won, err := search(ctx, o.Routes(), func(ctx context.Context, r Route) (established, error) {
		return o.Identity.dialAndGreet(ctx, r, nil, func(c net.Conn) (established, error) { return o.greet(ctx, c, r, id, nil) })
	})
	if err != nil {
		return nil, err
	}
	s := newSession(id, won.peer, won.welcome, o.Limits, o.Handle, won.key)
	s.account, s.budget = accountOf(won.peer, won.conn), o.Budget
	s.keeperWake = make(chan struct{}, 1)
	s.roundTrips.add(won.trip)
	k := &keeper{s: s, o: o, route: won.route}
	// The session exists when the server's first message has come: from then on it
	// can be resumed.
	if err := begin(ctx, s, won.conn); err != nil {
		s.end(err)
		<-s.finished
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil, cmp.Or(s.err, ErrEnded)
	}
	s.onEnd = o.Ended
	s.wg.Add(1)
	go k.run()
	return s, nil
}

// begin gives a new session its connection and waits for the peer's first word.
func begin(ctx context.Context, s *Session, c net.Conn) error {
	if !s.attach(c, 1, nil) {
		_ = c.Close()
		return ErrEnded
	}
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if l == nil {
		return errCut
	}
	select {
	case <-l.ready:
		return nil
	case <-l.readDone:
		return errCut
	case <-ctx.Done():
		return ctx.Err()
	}
}

// greet does the handshake of a control connection, of a new session or of one that goes on.
func (o *DialOptions) greet(ctx context.Context, c net.Conn, r Route, id transport.SessionID, goesOn *Session) (established, error) {
	creds := o.Identity.credentials()
	token := creds.Shown()
	var key sessionKey
	if goesOn != nil {
		key = goesOn.key
		if same := creds.Token(goesOn.peerID.Token); same != nil {
			token = same // the peer knows the session by it
		}
	}
	h := controlHello(o.Identity, o.Limits, id, token)
	if goesOn != nil {
		h.resume, h.peerEpoch = true, goesOn.peerEpoch
	}
	if !dialsPlain(creds, r.Remote.Addr()) {
		var err error
		if c, err = secureDialled(ctx, c, o.Identity.TLS, creds, o.PeerName); err != nil {
			return established{}, err
		}
	}
	out, err := dialHandshake(c, h, tokenSecret(token), key)
	if _, refused := errors.AsType[*refusal](err); o.Expect != nil && goesOn == nil && (err == nil || refused) {
		// Whoever answers has proven that it is one of ours, and not yet that it is the one.
		err = cmp.Or(o.Expect(out.welcome.name, out.welcome.epoch), err)
	}
	if err != nil {
		return out, peertls.Explain(err, creds)
	}
	out.peer = trust.PeerID{Certificate: namesOf(c), Token: h.tokenName, Claimed: out.welcome.name}
	if goesOn != nil && !sameProof(goesOn.peerID, out.peer) {
		return out, fmt.Errorf("%w: the peer has other names in its certificate than when the session began", trust.ErrCertificate)
	}
	return out, nil
}

// dialAndGreet connects over one route and does the handshake.
func (id *Identity) dialAndGreet(ctx context.Context, r Route, control func(uintptr) error, greet func(net.Conn) (established, error)) (established, error) {
	c, err := id.connect(ctx, r, control)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return established{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	out, err := greet(c)
	out.route = r
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = c.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return established{}, err
	}
	return out, nil
}

// connect connects over one route.
func (id *Identity) connect(ctx context.Context, r Route, control func(uintptr) error) (net.Conn, error) {
	if id.Network != nil {
		return id.Network.Dial(ctx, id.Name, r.Remote)
	}
	c, err := dialRoute(ctx, r, control)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// search tries routes, each a little later than the one before it, until one
// works; the others are ended then.
func search(ctx context.Context, routes []Route, try func(context.Context, Route) (established, error)) (established, error) {
	routes = distinct(routes)
	if len(routes) == 0 {
		return established{}, fmt.Errorf("%w: no address is known", ErrUnreachable)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		established
		failed routeError
	}
	results := make(chan result)
	begin := func(r Route) {
		e, err := try(ctx, r)
		results <- result{e, routeError{r, err}}
	}
	t := time.NewTimer(0)
	defer t.Stop()
	var won established
	var failed routeErrors
	next, running := 0, 0
	for next < len(routes) || running > 0 {
		var later <-chan time.Time
		if next < len(routes) {
			later = t.C
		}
		select {
		case <-later:
			running++
			go begin(routes[next])
			next++
			t.Reset(stagger)
		case r := <-results:
			running--
			switch {
			case r.failed.err != nil:
				failed = append(failed, r.failed)
				t.Reset(0)
			case won.conn != nil:
				_ = r.conn.Close()
			default:
				won = r.established
				cancel()
				next = len(routes)
			}
		}
	}
	if won.conn != nil {
		return won, nil
	}
	failed.sort()
	return established{}, failed
}

func distinct(routes []Route) []Route {
	var out []Route
	for _, r := range routes {
		if r.Remote.IsValid() && !slices.Contains(out, r) && len(out) < maxRoutes {
			out = append(out, r)
		}
	}
	return out
}

// DialData connects, and proves that the connection is the one that the peer gave the key for,
// and the peer the one that gave it. ctx bounds that.
func DialData(ctx context.Context, d DataDial) (net.Conn, error) {
	id := d.Identity.complete()
	h := hello{kind: kindData, session: d.Session, conn: d.Conn}
	creds := id.credentials()
	e, err := retryBusy(ctx, func() (established, error) {
		return id.dialAndGreet(ctx, d.Route, d.Control, func(c net.Conn) (established, error) {
			if d.Sealed {
				var own trust.Credentials // no roots: the proof tells whose connection it is
				if creds != nil {
					own.Certificate = creds.Certificate
				}
				var err error
				if c, err = secureDialled(ctx, c, id.TLS, &own, ""); err != nil {
					return established{}, err
				}
			}
			out, err := dialHandshake(c, h, dataSecret(d.Key), sessionKey{})
			return out, peertls.Explain(err, creds)
		})
	})
	if err != nil {
		return nil, pkgerr.Errorf("session", "data connection to %s: %w", d.Route, err)
	}
	return e.conn, nil
}
