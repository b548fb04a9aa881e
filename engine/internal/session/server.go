package session

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport"
)

// Counts say what a server did since it began.
type Counts struct {
	Accepted int64             // connections
	Refused  map[Refusal]int64 // of them; every Refusal of a connection has its place
	// RefusedCalls are calls of peers that were let in, and messages that did not arrive.
	RefusedCalls map[Refusal]int64
	Altered      int64 // connections of sessions that brought what the other end had not sent
	Sessions     int   // now
}

// Server lets peers in.
type Server struct {
	o         ServerOptions
	listeners []net.Listener
	wg        sync.WaitGroup
	stop      chan struct{}
	start     time.Time

	mu       sync.Mutex
	closed   bool
	pending  crowd
	sessions map[transport.SessionID]*serverSession
	price    transport.Price // of a session
	accepted int64
	refused  RefusalLog

	callsMu      sync.Mutex // also of altered
	refusedCalls RefusalLog
	altered      RefusalLog
}

// serverSession is a session with the data connections that were let in for it.
type serverSession struct {
	*Session
	standing
	data []net.Conn
}

// Serve accepts on the listeners until Close, which closes them.
func Serve(listeners []net.Listener, o ServerOptions) *Server {
	o.Identity = o.Identity.complete()
	o.Limits = o.Limits.withDefaults()
	s := &Server{
		o: o, listeners: listeners, stop: make(chan struct{}), start: time.Now(),
		pending:  crowd{by: map[net.Conn]*comer{}},
		sessions: map[transport.SessionID]*serverSession{},
		price:    transport.Price{{Of: transport.NewShares("sessions", int64(o.Limits.Sessions)), N: 1}, {Of: o.Budget.Memory, N: sessionBytes}},
		refused:  NewRefusalLog(o.Logger, "connections were refused", refusals),

		refusedCalls: NewRefusalLog(o.Logger, "calls were refused", refusedCalls),
		altered:      NewRefusalLog(o.Logger, "frames were changed on the way", altered),
	}
	s.wg.Add(1 + len(listeners))
	go s.watch()
	for _, l := range listeners {
		go s.accept(l)
	}
	return s
}

// Counts is what the server did so far.
func (s *Server) Counts() Counts {
	s.callsMu.Lock()
	calls, altered := s.refusedCalls.byReason(), s.altered.counts[RefusedAltered]
	s.callsMu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	return Counts{Accepted: s.accepted, Refused: s.refused.byReason(), RefusedCalls: calls, Altered: altered, Sessions: len(s.sessions)}
}

// Close ends every session and connection and waits for all goroutines. Data
// connections stay with their owner.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.wg.Wait()
		return nil
	}
	s.closed = true
	close(s.stop)
	var all []*serverSession
	for _, v := range s.sessions {
		all = append(all, v)
	}
	for c := range s.pending.by {
		_ = c.Close()
	}
	s.mu.Unlock()
	var errs []error
	for _, l := range s.listeners {
		errs = append(errs, l.Close())
	}
	var wg sync.WaitGroup
	for _, v := range all {
		wg.Go(func() { _ = v.Close() })
	}
	wg.Wait()
	s.wg.Wait()
	return errors.Join(errs...)
}

// acceptPause is how long accepting rests after an error such as too many open
// files.
const acceptPause = 20 * time.Millisecond

func (s *Server) accept(l net.Listener) {
	defer s.wg.Done()
	for {
		c, err := l.Accept()
		if err == nil {
			_ = control(c, limitSilence)
			s.admit(c)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if noFilesLeft(err) {
			s.makeRoom(l)
		}
		select {
		case <-s.stop:
			return
		case <-time.After(acceptPause):
		}
	}
}

// makeRoom has a connection in its handshake give its descriptor up.
func (s *Server) makeRoom(l net.Listener) {
	s.mu.Lock()
	s.refused.Add(RefusedSockets, nil, l.Addr(), time.Now())
	old := s.evict("")
	s.mu.Unlock()
	old.leave()
}

// evict takes a connection out that makes room for another one. Who calls it has it leave when the
// mutex, which is held, is free.
func (s *Server) evict(from transport.Account) *comer {
	old := s.pending.crowding(from)
	if old != nil {
		delete(s.pending.by, old.conn)
	}
	return old
}

// leave closes a connection. One that was told nothing yet is told that we are busy.
func (w *comer) leave() {
	if w == nil {
		return
	}
	if w.stage == silent {
		busy := answer{min: minVersion, max: maxVersion, version: maxVersion, status: statusBusy}
		// The first write of a socket does not wait.
		_ = w.conn.SetWriteDeadline(time.Now().Add(time.Millisecond))
		_, _ = w.conn.Write(busy.encode())
	}
	_ = w.conn.Close()
}

// admit begins a connection's handshake. Where too many are in theirs, another one makes room.
func (s *Server) admit(c net.Conn) {
	now := time.Now()
	s.mu.Lock()
	s.accepted++
	if s.closed {
		s.mu.Unlock()
		_ = c.Close()
		return
	}
	var old *comer
	if len(s.pending.by) >= s.o.Limits.UnauthenticatedConns {
		old = s.evict(addressOf(c))
	}
	s.pending.add(c)
	s.wg.Add(1)
	s.mu.Unlock()
	old.leave()
	go func() {
		defer s.wg.Done()
		err := s.arrive(c, now.Add(s.o.Limits.AuthTime))
		if err != nil {
			_ = c.Close()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		_, pending := s.pending.by[c]
		delete(s.pending.by, c)
		if err == nil {
			return
		}
		why := refusalOf(err)
		if why == RefusedGone && !pending {
			why = RefusedBusy // it was closed here, to make room
		}
		s.refused.Add(why, err, c.RemoteAddr(), time.Now())
	}()
}

// errEvicted is the end of a connection that had to make room.
var errEvicted = refused{RefusedBusy}

// settled takes a connection out of those that may have to make room for others; false
// where it had to already. It comes before the connection is handed on: it belongs to a
// session then, and closing it would be that session's loss. The mutex is held.
func (s *Server) settled(c net.Conn) bool {
	c = socketOf(c)
	_, ok := s.pending.by[c]
	delete(s.pending.by, c)
	return ok
}

// reached says how far a connection has come; an error where it has made room for another one.
func (s *Server) reached(c net.Conn, now stage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.pending.by[socketOf(c)]
	if x == nil {
		return errEvicted
	}
	x.stage = now
	return nil
}

// arrive takes a connection through its handshake to its session.
func (s *Server) arrive(c net.Conn, deadline time.Time) error {
	if err := c.SetDeadline(deadline); err != nil {
		return err
	}
	head := make([]byte, helloHead)
	if _, err := io.ReadFull(c, head); err != nil {
		return err
	}
	if err := s.reached(c, speaking); err != nil {
		return err
	}
	isTLS := isClientHello(head)
	if !isTLS && string(head[:len(magic)]) != magic && s.o.Other != nil {
		return s.arriveOther(head, c)
	}
	creds := s.o.Identity.credentials()
	if isTLS {
		var err error
		if c, err = secureAccepted(c, head, s.o.Identity.TLS, creds); err != nil {
			return err
		}
		if err := s.reached(c, secure); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, head); err != nil {
			return err
		}
	}
	a, err := acceptHandshake(c, head, lock{creds, s.dataSecret})
	if err != nil {
		return err
	}
	if err := s.reached(c, proven); err != nil {
		return err
	}
	if a.hello.kind == kindData {
		return s.arriveData(a)
	}
	return s.arriveControl(a)
}

// dataSecret is what the dialler of a data connection has to prove; false where none is expected.
func (s *Server) dataSecret(h *hello) (shared, bool) {
	if s.o.DataKey == nil {
		return shared{}, false
	}
	key, ok := s.o.DataKey(h.session, h.conn)
	return dataSecret(key), ok
}

// arriveOther gives a connection away that another protocol's client has made.
func (s *Server) arriveOther(first []byte, c net.Conn) error {
	if err := c.SetDeadline(time.Time{}); err != nil {
		return err
	}
	s.mu.Lock()
	ok := s.settled(c) && !s.closed
	s.mu.Unlock()
	if !ok {
		return errEvicted
	}
	s.o.Other(&unread{c, first})
	return nil
}

// unread is a connection of which the first bytes are read again.
type unread struct {
	net.Conn
	first []byte
}

// Read implements net.Conn.
func (u *unread) Read(p []byte) (int, error) {
	if len(u.first) == 0 {
		return u.Conn.Read(p)
	}
	n := copy(p, u.first)
	u.first = u.first[n:]
	return n, nil
}

// CloseWrite is that of a TCP connection.
func (u *unread) CloseWrite() error {
	if c, ok := u.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

func (s *Server) arriveData(a *arrival) error {
	id := a.hello.session
	s.mu.Lock()
	st := statusOK
	v := s.sessions[id]
	switch {
	case v == nil || s.closed || s.o.Data == nil:
		st = statusEnded
	default:
		open := v.data[:0]
		for _, c := range v.data {
			if !closed(c) {
				open = append(open, c)
			}
		}
		clear(v.data[len(open):])
		v.data = open
		if len(open) >= s.o.Limits.DataConnsPerSession {
			st = statusLimit
		} else {
			v.data = append(v.data, a.conn)
		}
	}
	s.mu.Unlock()
	if err := a.reply(&s.o.Identity, s.o.Limits, st, nil); err != nil {
		return err
	}
	if st != statusOK {
		return refusedBy(st)
	}
	if err := a.conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	s.mu.Lock()
	ok := s.settled(a.conn)
	s.mu.Unlock()
	if !ok {
		return errEvicted
	}
	if err := s.o.Data(id, a.hello.conn, v.peerName, a.conn); err != nil {
		return refused{RefusedEnded}
	}
	return nil
}

// arriveControl makes a session, or gives one its new connection. That happens
// when the dialler's first message comes: it may have tried several routes at
// once, and uses one.
func (s *Server) arriveControl(a *arrival) error {
	st, resumed := s.judge(a)
	var full error
	made := false
	if st == statusOK && !a.hello.resume {
		if full = s.price.Take(accountOf(a.peer, a.conn)); full != nil {
			st = statusLimit
		} else {
			defer func() {
				if !made {
					s.price.Give(accountOf(a.peer, a.conn))
				}
			}()
		}
	}
	if err := a.reply(&s.o.Identity, s.o.Limits, st, resumed); err != nil {
		return err
	}
	switch {
	case full != nil:
		return full
	case st != statusOK:
		return refusedBy(st)
	}
	sync, err := readMessage(a.conn, bounds{calls: s.o.Limits.CallsInFlight})
	if err != nil {
		return err
	}
	if sync.kind != msgSync || sync.number == 0 {
		return errMalformed
	}
	if err := a.conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.sessions[a.hello.session]
	// Sessions came and went since the answer: another one may have taken the ID.
	if st := s.judged(a, v); st != statusOK || s.closed {
		return refusedBy(st)
	}
	if !s.settled(a.conn) {
		return errEvicted
	}
	if v == nil {
		v = &serverSession{Session: s.make(a)}
		s.sessions[v.id], made = v, true
	}
	if !v.attach(a.conn, sync.number, &sync) {
		return refused{RefusedEnded}
	}
	v.standing = standing{proof: s.proofOf(a)}
	return nil
}

// refusedBy is the refusal that a status says.
func refusedBy(st status) error {
	switch st {
	case statusVersion:
		return refused{RefusedVersion}
	case statusToken:
		return refused{RefusedToken}
	case statusLimit:
		return refused{RefusedLimit}
	}
	return refused{RefusedEnded}
}

// judge says what becomes of an authenticated control connection, and gives the key of the
// session that it resumes.
func (s *Server) judge(a *arrival) (st status, resumed []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.sessions[a.hello.session]
	st = s.judged(a, v)
	if st == statusOK && v != nil {
		resumed = v.key[:]
	}
	return st, resumed
}

// judged is judge for the session that has the ID, nil without. The mutex is held.
func (s *Server) judged(a *arrival, v *serverSession) status {
	switch {
	case !a.hello.resume && v != nil:
		return statusEnded // the name is taken: IDs are random, this is no accident
	case !a.hello.resume:
		return statusOK
	case a.hello.peerEpoch != s.o.Identity.Epoch:
		return statusRestarted
	case v == nil || !a.resumes(v.key) || !sameProof(v.peerID, a.peer):
		return statusEnded
	}
	return statusOK
}

func (s *Server) make(a *arrival) *Session {
	w := welcome{
		epoch: a.hello.epoch, name: a.hello.name,
		messageBytes: a.hello.messageBytes, calls: a.hello.calls,
	}
	v := newSession(a.hello.session, a.peer, w, s.o.Limits, s.o.Handle, a.key)
	v.account, v.budget = accountOf(a.peer, a.conn), s.o.Budget
	v.onRefuse = func(why Refusal) {
		s.callsMu.Lock()
		defer s.callsMu.Unlock()
		log := &s.refusedCalls
		if why == RefusedAltered {
			log = &s.altered
		}
		log.Add(why, nil, v.Remote(), time.Now())
	}
	s.wg.Add(1)
	v.onEnd = func(v *Session, err error) {
		defer s.wg.Done()
		defer s.price.Give(v.account)
		if s.o.Ended != nil {
			s.o.Ended(v, err)
		}
	}
	v.onForget = func(v *Session) {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.sessions, v.id)
	}
	return v
}

// watch ends sessions that nothing comes from any more, or whose peers would not be let in now.
func (s *Server) watch() {
	defer s.wg.Done()
	every := max(min(s.o.Limits.Orphaned, s.o.Limits.Withdrawn)/8, time.Millisecond)
	t := time.NewTicker(every)
	defer t.Stop()
	last, awake := time.Now(), time.Now()
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
		}
		now := time.Now()
		if now.Sub(last) > 2*every {
			awake = now // we did not run: peers could not be heard
		}
		last = now
		s.callsMu.Lock()
		s.refusedCalls.Tell(now)
		s.altered.Tell(now)
		s.callsMu.Unlock()
		s.mu.Lock()
		s.refused.Tell(now)
		var silent []*Session
		for _, v := range s.sessions {
			heard := v.start.Add(time.Duration(v.lastHeard.Load()))
			if awake.After(heard) {
				heard = awake
			}
			if now.Sub(heard) > s.o.Limits.Orphaned {
				silent = append(silent, v.Session)
			}
		}
		s.mu.Unlock()
		for _, v := range silent {
			v.end(ErrUnreachable)
		}
		s.withdraw(now)
	}
}
