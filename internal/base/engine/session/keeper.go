package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	pingEvery = time.Second // of an idle session
	// An idle session's connection may be silent this much longer than that of one
	// with an unanswered call.
	idlePatience = 10
	longTrips    = 4 // round trips that no answer takes
	// A peer whose kernel has taken all that we sent is reachable: its process is
	// slow, or something between us swallows what we say. Another connection helps
	// in the second case only, so it gets more time.
	takenPatience = 5
	mostPatience  = 16
	shortLife     = time.Second // of a connection that brought no answer: the next is not hurried
	longestPause  = 500 * time.Millisecond
	firstRound    = time.Second // that all routes may take
	longestRound  = 4 * time.Second
	deferral      = 5 * time.Millisecond
	mostDeferred  = 3
)

// keeper watches over the connection of a session on the dialling side, and finds
// another one when it dies or falls silent.
type keeper struct {
	s *Session
	o DialOptions

	route    Route // of the present connection
	due      int64 // when step is to be called again, on the session's clock
	late     int64 // by how much it was called late
	deferred int   // calls in a row that were too late to judge by
	silence  quiet // of the present connection
	absence  quiet // of the peer
	found    chan outcome
	stop     context.CancelFunc // of the search that is running, nil none
	suspect  int64              // when the present connection was found silent, 0 not
	attached int64
	lost     bool
	retryAt  int64
	pause    time.Duration
	round    time.Duration
	lastErr  error

	patience int64  // grows with every move that brought no answer
	answers  uint64 // at the last move
	acked    uint64 // bytes that the peer's kernel has taken
}

// outcome is how a search ended.
type outcome struct {
	established
	verdict error // the session is over
	err     error
}

func (k *keeper) run() {
	s := k.s
	defer s.wg.Done()
	k.found = make(chan outcome, 1)
	k.patience, k.round, k.attached = 1, firstRound, s.now()
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-s.over:
			k.endSearch()
			return
		case <-s.poke:
		case <-t.C:
		case o := <-k.found:
			k.stop()
			k.stop = nil
			if k.take(o) {
				return
			}
		}
		wait, end := k.step(s.now())
		if end != nil {
			k.endSearch()
			s.end(end)
			return
		}
		t.Reset(wait)
	}
}

// endSearch cancels a search and waits for it.
func (k *keeper) endSearch() {
	if k.stop == nil {
		return
	}
	k.stop()
	if o := <-k.found; o.conn != nil {
		_ = o.conn.Close()
	}
	k.stop, k.suspect = nil, 0
}

// step looks at the connection, acts, and says how long nothing needs to be done.
func (k *keeper) step(now int64) (wait time.Duration, end error) {
	k.late = 0
	if k.due != 0 {
		k.late = max(0, now-k.due)
	}
	wait, end = k.look(now)
	wait = max(wait, time.Millisecond)
	k.due = now + int64(wait)
	return wait, end
}

// quiet measures how long nothing has happened, without the time in which our own
// process did not run and could not have seen it.
type quiet struct{ since, absent int64 }

func (q *quiet) time(now, since, late int64) time.Duration {
	if q.since != since {
		q.since, q.absent = since, 0
	} else {
		q.absent += late
	}
	return time.Duration(max(0, now-since-q.absent))
}

// tooLate says whether what came may not have been read yet, because we did not
// run for a while. On a machine where that is always so it must be judged anyway.
func (k *keeper) tooLate() bool {
	if time.Duration(k.late) < k.o.Silence/2 || k.deferred == mostDeferred {
		k.deferred = 0
		return false
	}
	k.deferred++
	return true
}

func (k *keeper) look(now int64) (wait time.Duration, end error) {
	s := k.s
	s.mu.Lock()
	l, waiting, answers, closing := s.link, len(s.calls) > 0, s.answers, s.closing
	s.mu.Unlock()
	if closing {
		return pingEvery, nil // until the end, which is near
	}
	heard := s.heard.Load()
	if l != nil {
		heard = max(heard, l.moved.Load())
	}
	gone := k.absence.time(now, heard, k.late)
	if k.tooLate() {
		return deferral, nil
	}
	if gone > k.o.GiveUp {
		err := fmt.Errorf("%w: nothing came for %v", ErrUnreachable, gone.Round(time.Millisecond))
		if k.lastErr != nil {
			err = fmt.Errorf("%w; %w", err, k.lastErr)
		}
		return 0, err
	}
	giveUp := k.o.GiveUp - gone + time.Millisecond
	if l == nil {
		return min(k.reconnect(now, answers), giveUp), nil
	}
	k.lost = false
	if answers != k.answers || (!waiting && now-k.attached > int64(shortLife)) {
		k.patience = 1
	}
	if k.suspect != 0 && s.heard.Load() > k.suspect {
		k.endSearch() // it speaks again
	}
	return min(k.listen(l, now, waiting), giveUp), nil
}

// reconnect starts a search where the connection is gone.
func (k *keeper) reconnect(now int64, answers uint64) time.Duration {
	if !k.lost {
		k.lost = true
		if now-k.attached > int64(shortLife) || answers != k.answers {
			k.pause = 0
		}
		k.later(now)
	}
	if k.stop != nil {
		return time.Second
	}
	if now < k.retryAt {
		return time.Duration(k.retryAt - now)
	}
	k.search()
	return time.Second
}

// later sets when to search next, each time a little later.
func (k *keeper) later(now int64) {
	k.retryAt = now + int64(k.pause)
	k.pause = min(max(2*k.pause, 20*time.Millisecond), longestPause)
}

// listen pings, and finds out whether the present connection is silent.
func (k *keeper) listen(l *link, now int64, waiting bool) time.Duration {
	quiet, every := k.o.Silence*idlePatience, min(pingEvery, k.o.GiveUp/4)
	if waiting {
		quiet, every = k.o.Silence, k.o.Silence/2
	}
	quiet = max(quiet, longTrips*l.s.RoundTrip()) // far peers cannot answer sooner
	moved := l.moved.Load()
	l.s.mu.Lock()
	if !l.unponged && now-moved >= int64(every) {
		l.askPing(now)
	}
	asked, unponged := l.pinged, l.unponged
	l.s.mu.Unlock()
	if !unponged {
		return every - time.Duration(now-moved)
	}
	silent := k.silence.time(now, max(asked, moved), k.late)
	quiet *= time.Duration(k.patience)
	if silent < quiet {
		return quiet - silent
	}
	if k.suspect != 0 {
		if k.stop == nil && now >= k.retryAt {
			k.search()
		}
		return quiet
	}
	bytes, all, ok := delivered(l.c)
	if ok && bytes != k.acked {
		k.acked = bytes
		l.moved.Store(now)
		return quiet
	}
	if ok && all && silent < takenPatience*quiet {
		return takenPatience*quiet - silent
	}
	k.suspect, k.pause = now, 0
	k.search()
	return quiet
}

// search tries all routes, the present one last, in a goroutine.
func (k *keeper) search() {
	ctx, cancel := context.WithTimeout(context.Background(), k.round)
	k.round = min(2*k.round, longestRound)
	k.stop = cancel
	s := k.s
	present := k.route
	h := controlHello(k.o.Identity, k.o.Limits, s.id)
	h.resume, h.peerEpoch = true, s.peerEpoch
	was := s.Remote()
	s.wg.Add(1) // the keeper itself holds one
	go func() {
		defer s.wg.Done()
		routes := slices.DeleteFunc(slices.Clone(k.o.Routes()), func(r Route) bool { return r == present })
		routes = append(routes[:min(len(routes), mostRoutes-1)], present)
		var mu sync.Mutex
		var verdict error
		won, err := search(ctx, routes, func(ctx context.Context, r Route) (established, error) {
			e, err := dialGreet(ctx, r, h, k.o.Identity.Token, s.key, nil)
			if final := k.judge(r, err, was.String() == r.Remote.String()); final != nil {
				mu.Lock()
				verdict = final
				mu.Unlock()
				cancel()
			}
			return e, err
		})
		k.found <- outcome{won, verdict, err}
	}()
}

// judge says whether a refusal ends the session. Another engine may have one of
// the peer's addresses (those of container bridges are on every host), and does
// not know the session either: what counts is the peer's own word.
func (k *keeper) judge(r Route, err error, sameAddress bool) error {
	var no *refusal
	if !errors.As(err, &no) {
		return nil
	}
	switch {
	case no.status == statusEnded && no.epoch == k.s.peerEpoch:
		return fmt.Errorf("%w: %s does not know it any more", ErrEnded, r)
	case no.status == statusRestarted && (sameAddress || no.name == k.s.peerName):
		return ErrRestarted
	}
	return nil
}

// take uses what a search found; true: the session is over.
func (k *keeper) take(o outcome) bool {
	s, now := k.s, k.s.now()
	if o.conn == nil {
		if o.verdict != nil {
			s.end(o.verdict)
			return true
		}
		k.lastErr = o.err
		k.later(now)
		return false
	}
	s.mu.Lock()
	generation, answers := s.generation+1, s.answers
	s.mu.Unlock()
	if k.suspect != 0 {
		k.patience = min(2*k.patience, mostPatience)
	}
	if !s.attach(o.conn, generation, nil) {
		_ = o.conn.Close()
		return false
	}
	s.trips.reset()
	s.trips.add(o.trip)
	k.route = o.route
	k.suspect, k.acked, k.attached, k.answers, k.round = 0, 0, now, answers, firstRound
	k.lost, k.lastErr = false, nil
	return false
}
