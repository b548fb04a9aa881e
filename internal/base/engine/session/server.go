package session

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/topoctl/topoctl/internal/base/engine/transport"
)

// Counts say what a server did since it began.
type Counts struct {
	Accepted int64             // connections
	Refused  map[Refusal]int64 // of them; every Refusal has its place
	Sessions int               // now
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
	pending  map[net.Conn]time.Time // in their handshake, since when
	sessions map[transport.SessionID]*serverSession
	accepted int64
	refused  refusalLog
}

// serverSession is a session with the data connections that were let in for it.
type serverSession struct {
	*Session
	data []net.Conn
}

// Serve accepts on the listeners until Close, which closes them.
func Serve(listeners []net.Listener, o ServerOptions) *Server {
	o.Identity = o.Identity.cleaned()
	o.Limits = o.Limits.withDefaults()
	s := &Server{
		o: o, listeners: listeners, stop: make(chan struct{}), start: time.Now(),
		pending:  map[net.Conn]time.Time{},
		sessions: map[transport.SessionID]*serverSession{},
		refused:  newRefusalLog(o.Logger),
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
	s.mu.Lock()
	defer s.mu.Unlock()
	return Counts{Accepted: s.accepted, Refused: s.refused.byReason(), Sessions: len(s.sessions)}
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
	for c := range s.pending {
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
			s.admit(c)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		select {
		case <-s.stop:
			return
		case <-time.After(acceptPause):
		}
	}
}

// admit begins a connection's handshake. Where too many are in theirs, the one
// that has been so the longest makes room if it had a fair chance, else the new
// one is told to come again: slow clients do not keep others out.
func (s *Server) admit(c net.Conn) {
	now := time.Now()
	s.mu.Lock()
	s.accepted++
	room := !s.closed
	if room && len(s.pending) >= s.o.Limits.UnauthenticatedConns {
		var oldest net.Conn
		for p, since := range s.pending {
			if oldest == nil || since.Before(s.pending[oldest]) {
				oldest = p
			}
		}
		room = now.Sub(s.pending[oldest]) > s.o.Limits.AuthTime/20
		if room {
			delete(s.pending, oldest)
			_ = oldest.Close()
		} else {
			s.refused.add(RefusedBusy, c.RemoteAddr(), now)
		}
	}
	if room {
		s.pending[c] = now
		s.wg.Add(1)
	}
	s.mu.Unlock()
	if !room {
		busy := answer{min: minVersion, max: maxVersion, version: maxVersion, status: statusBusy, token: len(s.o.Identity.Token) > 0}
		// The first write of a socket does not wait.
		_ = c.SetWriteDeadline(now.Add(time.Millisecond))
		_, _ = c.Write(busy.encode())
		_ = c.Close()
		return
	}
	go func() {
		defer s.wg.Done()
		err := s.arrive(c, now.Add(s.o.Limits.AuthTime))
		if err != nil {
			_ = c.Close()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		_, pending := s.pending[c]
		delete(s.pending, c)
		if err == nil {
			return
		}
		why := refusalOf(err)
		if why == RefusedGone && !pending {
			why = RefusedSlow // it was closed here, to make room
		}
		s.refused.add(why, c.RemoteAddr(), time.Now())
	}()
}

// errEvicted is the end of a connection that had to make room.
var errEvicted = refused{RefusedSlow}

// settled takes a connection out of those that may have to make room for others; false
// where it had to already. It comes before the connection is handed on: it belongs to a
// session then, and closing it would be that session's loss. The mutex is held.
func (s *Server) settled(c net.Conn) bool {
	_, ok := s.pending[c]
	delete(s.pending, c)
	return ok
}

// arrive takes a connection through its handshake to its session.
func (s *Server) arrive(c net.Conn, deadline time.Time) error {
	if err := c.SetDeadline(deadline); err != nil {
		return err
	}
	a, err := acceptHandshake(c, &s.o.Identity)
	if other := (*notEngine)(nil); errors.As(err, &other) && s.o.Other != nil {
		return s.arriveOther(other.first, c)
	}
	if err != nil {
		return err
	}
	if a.hello.kind == kindData {
		return s.arriveData(a)
	}
	return s.arriveControl(a)
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
	s.o.Other(first, c)
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
	if err := a.reply(&s.o.Identity, s.o.Limits, st); err != nil {
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
	st := s.judge(a)
	if err := a.reply(&s.o.Identity, s.o.Limits, st); err != nil {
		return err
	}
	if st != statusOK {
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
		s.sessions[v.id] = v
	}
	if !v.attach(a.conn, sync.number, &sync) {
		return refused{RefusedEnded}
	}
	return nil
}

// refusedBy is the refusal that a status says.
func refusedBy(st status) error {
	if st == statusLimit {
		return refused{RefusedLimit}
	}
	return refused{RefusedEnded}
}

// judge says what becomes of an authenticated control connection.
func (s *Server) judge(a *arrival) status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.judged(a, s.sessions[a.hello.session])
}

// judged is judge for the session that has the ID, nil without. The mutex is held.
func (s *Server) judged(a *arrival, v *serverSession) status {
	switch {
	case !a.hello.resume && v != nil:
		return statusEnded // the name is taken: IDs are random, this is no accident
	case !a.hello.resume && len(s.sessions) >= s.o.Limits.Sessions:
		return statusLimit
	case !a.hello.resume:
		return statusOK
	case a.hello.peerEpoch != s.o.Identity.Epoch:
		return statusRestarted
	case v == nil || !a.resumes(v.resumeKey):
		return statusEnded
	}
	return statusOK
}

func (s *Server) make(a *arrival) *Session {
	w := welcome{
		epoch: a.hello.epoch, name: a.hello.name,
		messageBytes: a.hello.messageBytes, calls: a.hello.calls,
	}
	v := newSession(a.hello.session, w, s.o.Limits, s.o.Handle, a.key)
	s.wg.Add(1)
	v.onEnd = func(v *Session, err error) {
		defer s.wg.Done()
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

// watch ends sessions that nothing comes from any more.
func (s *Server) watch() {
	defer s.wg.Done()
	every := max(s.o.Limits.Orphaned/8, time.Millisecond)
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
		s.mu.Lock()
		s.refused.tell(now)
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
	}
}
