package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/topoctl/topoctl/engine/internal/peertls"
)

const (
	pingEvery = time.Second // of an idle session
	// The connection of an idle session may be silent this much longer than that of a
	// session with an unanswered call.
	idleSilenceFactor = 10
	minSilenceTrips   = 4 // round trips that no answer takes
	// A peer whose kernel has taken all that we sent is reachable: its process is
	// slow, or something between us swallows what we say. Another connection helps
	// in the second case only, so it gets more time.
	deliveredSilenceFactor = 5
	maxPatience            = 16
	shortLife              = time.Second // of a connection that brought no answer: the next is not hurried
	maxRetryPause          = 500 * time.Millisecond
	firstSearchTime        = time.Second // that all routes may take
	maxSearchTime          = 4 * time.Second
	deferTime              = 5 * time.Millisecond
	maxDeferrals           = 3
)

// keeper watches over the connection of a session on the dialling side, and finds
// another one when it dies or falls silent.
type keeper struct {
	s *Session
	o DialOptions

	route        Route        // of the present connection
	dueAt        int64        // of step, on the session's clock
	lateBy       int64        // of the last step
	deferrals    int          // steps in a row that came too late to judge
	linkSilence  silenceTimer // of the present connection
	peerSilence  silenceTimer
	searchResult chan searchOutcome
	cancelSearch context.CancelFunc // of the search that is running, nil none
	suspectedAt  int64              // when the present connection was found silent, 0: it was not
	attachedAt   int64
	linkLost     bool
	retryAt      int64
	retryPause   time.Duration
	searchTime   time.Duration
	lastErr      error

	patience      int64 // grows with every move that brought no answer
	answersAtMove uint64

	taken deliveries
}

// deliveries are what the peer's kernel has taken of what we sent, at the last look.
type deliveries struct {
	bytes uint64
	all   bool  // there was no more
	known bool  // this host's kernel tells it
	at    int64 // when it was seen to take something
	// movedAt is when it was seen to take a part of what is still on the way, as it does where a message is
	// large and the network slow. A small message that it took says nothing of the process: the kernel of one
	// that stands still takes them for as long as they fit. Where the kernel does not tell, any write counts.
	movedAt int64
}

// look asks the kernel.
func (d *deliveries) look(l *link, now int64) {
	before := *d
	if told, ok := socketOf(l.c).(interface {
		Delivered() (bytes uint64, all bool)
	}); ok { // of a transport.Network
		d.bytes, d.all = told.Delivered()
		d.known = true
	} else {
		d.bytes, d.all, d.known = delivered(l.c)
	}
	switch {
	case !d.known:
		d.movedAt = l.lastActive.Load()
	case before.known && d.bytes != before.bytes:
		d.at = now
		if !before.all && !d.all {
			d.movedAt = now
		}
	}
}

type searchOutcome struct {
	established
	verdict error // the session is over
	refused error // no one was found, and nothing listens any more where the peer was
	err     error
}

func (k *keeper) run() {
	s := k.s
	defer s.wg.Done()
	k.searchResult = make(chan searchOutcome, 1)
	k.patience, k.searchTime, k.attachedAt = 1, firstSearchTime, s.now()
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-s.done:
			k.endSearch()
			return
		case <-s.keeperWake:
		case <-t.C:
		case o := <-k.searchResult:
			k.cancelSearch()
			k.cancelSearch = nil
			if k.adopt(o) {
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
	if k.cancelSearch == nil {
		return
	}
	k.cancelSearch()
	if o := <-k.searchResult; o.conn != nil {
		_ = o.conn.Close()
	}
	k.cancelSearch, k.suspectedAt = nil, 0
}

// step looks at the connection, acts, and says how long nothing needs to be done.
func (k *keeper) step(now int64) (wait time.Duration, end error) {
	k.lateBy = 0
	if k.dueAt != 0 {
		k.lateBy = max(0, now-k.dueAt)
	}
	wait, end = k.check(now)
	wait = max(wait, time.Millisecond)
	k.dueAt = now + int64(wait)
	return wait, end
}

// silenceTimer measures how long nothing has happened, without the time in which our own
// process did not run and could not have seen it.
type silenceTimer struct{ since, absent int64 }

func (q *silenceTimer) elapsed(now, since, late int64) time.Duration {
	if q.since != since {
		q.since, q.absent = since, 0
	} else {
		q.absent += late
	}
	return time.Duration(max(0, now-since-q.absent))
}

// tooLateToJudge says whether what came may not have been read yet, because we did not
// run for a while. On a machine where that is always so it must be judged anyway.
func (k *keeper) tooLateToJudge() bool {
	if time.Duration(k.lateBy) < k.o.Silence/2 || k.deferrals == maxDeferrals {
		k.deferrals = 0
		return false
	}
	k.deferrals++
	return true
}

// check looks at the connection: it gives up, reconnects, or listens.
func (k *keeper) check(now int64) (wait time.Duration, end error) {
	s := k.s
	s.mu.Lock()
	l, waiting, answers, closing := s.link, len(s.sentCalls) > 0, s.answersReceived, s.closing
	s.mu.Unlock()
	if closing {
		return pingEvery, nil // until the end, which is near
	}
	heard := s.lastHeard.Load()
	if l != nil {
		k.taken.look(l, now)
		heard = max(heard, k.taken.movedAt)
	}
	gone := k.peerSilence.elapsed(now, heard, k.lateBy)
	if k.tooLateToJudge() {
		return deferTime, nil
	}
	if gone > k.o.GiveUp {
		silent := fmt.Sprintf("nothing was received for %v", gone.Round(time.Millisecond))
		err := fmt.Errorf("%w: %s", ErrUnreachable, silent)
		if errors.Is(k.lastErr, ErrUnreachable) {
			err = fmt.Errorf("%s; %w", silent, k.lastErr)
		} else if k.lastErr != nil {
			err = fmt.Errorf("%w; %w", err, k.lastErr)
		}
		if refusesOurs(k.lastErr) {
			err = fmt.Errorf("%w: %w", ErrWithdrawn, err)
		}
		return 0, err
	}
	giveUp := k.o.GiveUp - gone + time.Millisecond
	if l == nil {
		return min(k.reconnect(now, answers), giveUp), nil
	}
	k.linkLost = false
	if answers != k.answersAtMove || (!waiting && now-k.attachedAt > int64(shortLife)) {
		k.patience = 1
	}
	if k.suspectedAt != 0 && s.lastHeard.Load() > k.suspectedAt {
		k.endSearch() // it speaks again
	}
	return min(k.checkLink(l, now, waiting), giveUp), nil
}

// refusesOurs says whether a peer that has let us in before does not accept our token or
// the CA of our certificate any more.
func refusesOurs(err error) bool {
	said, ok := errors.AsType[*peertls.Error](err)
	return errors.Is(err, ErrToken) || ok && said.Remote && said.Cause == peertls.UnknownAuthority
}

// reconnect starts a search where the connection is gone.
func (k *keeper) reconnect(now int64, answers uint64) time.Duration {
	if !k.linkLost {
		k.linkLost = true
		if now-k.attachedAt > int64(shortLife) || answers != k.answersAtMove {
			k.retryPause = 0
		}
		k.postponeRetry(now)
	}
	if k.cancelSearch != nil {
		return time.Second
	}
	if now < k.retryAt {
		return time.Duration(k.retryAt - now)
	}
	k.search()
	return time.Second
}

// postponeRetry sets when to search next, each time a little later.
func (k *keeper) postponeRetry(now int64) {
	k.retryAt = now + int64(k.retryPause)
	k.retryPause = min(max(2*k.retryPause, 20*time.Millisecond), maxRetryPause)
}

// checkLink pings, and finds out whether the present connection is silent.
func (k *keeper) checkLink(l *link, now int64, waiting bool) time.Duration {
	maxSilence, every := k.o.Silence*idleSilenceFactor, min(pingEvery, k.o.GiveUp/4)
	if waiting {
		maxSilence, every = k.o.Silence, k.o.Silence/2
	}
	maxSilence = max(maxSilence, minSilenceTrips*l.s.RoundTrip()) // far peers cannot answer sooner
	active := l.lastActive.Load()
	l.s.mu.Lock()
	if !l.awaitingPong && now-active >= int64(every) {
		l.askPing(now)
	}
	asked, awaitingPong := l.pingQueuedAt, l.awaitingPong
	l.s.mu.Unlock()
	if !awaitingPong {
		return every - time.Duration(now-active)
	}
	silent := k.linkSilence.elapsed(now, max(asked, active, k.taken.at), k.lateBy)
	maxSilence *= time.Duration(k.patience)
	if silent < maxSilence {
		return maxSilence - silent
	}
	if k.suspectedAt != 0 {
		if k.cancelSearch == nil && now >= k.retryAt {
			k.search()
		}
		return maxSilence
	}
	if k.taken.known && k.taken.all && silent < deliveredSilenceFactor*maxSilence {
		return deliveredSilenceFactor*maxSilence - silent
	}
	k.suspectedAt, k.retryPause = now, 0
	k.search()
	return maxSilence
}

// search tries all routes, the present one last, in a goroutine.
func (k *keeper) search() {
	ctx, cancel := context.WithTimeout(context.Background(), k.searchTime)
	k.searchTime = min(2*k.searchTime, maxSearchTime)
	k.cancelSearch = cancel
	s := k.s
	present := k.route
	s.wg.Add(1) // the keeper itself holds one
	go func() {
		defer s.wg.Done()
		routes := slices.DeleteFunc(slices.Clone(k.o.Routes()), func(r Route) bool { return r == present })
		routes = append(routes[:min(len(routes), maxRoutes-1)], present)
		var mu sync.Mutex
		var verdict, refused error
		won, err := search(ctx, routes, func(ctx context.Context, r Route) (established, error) {
			e, err := k.o.Identity.dialAndGreet(ctx, r, nil, func(c net.Conn) (established, error) { return k.o.greet(ctx, c, r, s.id, s) })
			same := r.Remote == present.Remote
			mu.Lock()
			defer mu.Unlock()
			if final := k.judge(r, err, same); final != nil {
				verdict = final
				cancel()
			}
			if same && errors.Is(err, syscall.ECONNREFUSED) {
				refused = routeErrors{{r, err}}
			}
			return e, err
		})
		k.searchResult <- searchOutcome{won, verdict, refused, err}
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
		return fmt.Errorf("%w: %s no longer knows it", ErrEnded, r)
	case no.status == statusRestarted && (sameAddress || no.name == k.s.peerName):
		return ErrRestarted
	}
	return nil
}

// adopt uses what a search found; true: the session is over.
func (k *keeper) adopt(o searchOutcome) bool {
	s, now := k.s, k.s.now()
	if o.conn == nil {
		// A connection that is gone and an address that refuses another one: the peer's host
		// says that its process is not there. While there is a connection, a firewall may be
		// what lets no new ones in.
		if o.refused != nil && k.linkLost {
			o.verdict = o.refused
		}
		if o.verdict != nil {
			s.end(o.verdict)
			return true
		}
		k.lastErr = o.err
		k.postponeRetry(now)
		return false
	}
	s.mu.Lock()
	generation, answers := s.generation+1, s.answersReceived
	s.mu.Unlock()
	if k.suspectedAt != 0 {
		k.patience = min(2*k.patience, maxPatience)
	}
	if !s.attach(o.conn, generation, nil) {
		_ = o.conn.Close()
		return false
	}
	s.roundTrips.reset()
	s.roundTrips.add(o.trip)
	k.route = o.route
	k.suspectedAt, k.attachedAt, k.answersAtMove, k.searchTime = 0, now, answers, firstSearchTime
	k.linkLost, k.lastErr, k.taken = false, nil, deliveries{movedAt: k.taken.movedAt}
	return false
}
