package session

import (
	"errors"
	"log/slog"
	"maps"
	"net"
	"os"
	"time"
)

// Refusal is why a connection was not let in.
type Refusal string

// The refusals.
const (
	RefusedToken     Refusal = "wrong_token" // no token, or not ours
	RefusedMalformed Refusal = "malformed"   // not a handshake of ours, or one against the rules
	RefusedVersion   Refusal = "version"     // no version in common
	RefusedSlow      Refusal = "slow"        // not through the handshake in time, or while others wait
	RefusedBusy      Refusal = "busy"        // too many are in their handshake
	RefusedLimit     Refusal = "limit"       // of sessions, or of data connections of one
	RefusedEnded     Refusal = "ended"       // for a session that is over, or not the peer's
	RefusedGone      Refusal = "gone"        // the peer closed it before the end of the handshake
)

// refusals are all of them, and what the log says. Those without a text are no sign that
// anything is wrong: a dialler tries several routes and drops all but one, a peer does not
// know yet that its session is over.
var refusals = map[Refusal]string{
	RefusedToken:     "its token is not ours",
	RefusedMalformed: "it does not speak this protocol",
	RefusedVersion:   "it speaks no version that this engine does",
	RefusedSlow:      "it did not end its handshake in time",
	RefusedBusy:      "too many connections are in their handshake",
	RefusedLimit:     "there are as many sessions or connections as are taken",
	RefusedEnded:     "",
	RefusedGone:      "",
}

// refused carries the reason to where it is counted.
type refused struct{ why Refusal }

func (r refused) Error() string { return string(r.why) }

// refusalOf says which refusal an error of the handshake is.
func refusalOf(err error) Refusal {
	var r refused
	switch {
	case errors.As(err, &r):
		return r.why
	case errors.Is(err, errMalformed):
		return RefusedMalformed
	case errors.Is(err, os.ErrDeadlineExceeded):
		return RefusedSlow
	}
	return RefusedGone
}

// refusalPause is how long the log is silent about a refusal after a line about it:
// strangers decide how often they knock, and must not fill a disk.
const refusalPause = 30 * time.Second

// refusalLog counts refusals, and says so in the log: the first at once, those that follow
// within refusalPause together. What a stranger has sent is not in it, only where from.
type refusalLog struct {
	log     *slog.Logger
	counts  map[Refusal]int64
	pending map[Refusal]pendingRefusal
}

// pendingRefusal is what the log has not said yet.
type pendingRefusal struct {
	since time.Time // of the last line
	count int64
	from  string // the last one
}

func newRefusalLog(log *slog.Logger) refusalLog {
	l := refusalLog{log: log, counts: map[Refusal]int64{}, pending: map[Refusal]pendingRefusal{}}
	for why := range refusals {
		l.counts[why] = 0
	}
	return l
}

// add counts one.
func (l *refusalLog) add(why Refusal, from net.Addr, now time.Time) {
	l.counts[why]++
	if l.log == nil || refusals[why] == "" {
		return
	}
	p := l.pending[why]
	p.count++
	p.from = from.String()
	l.pending[why] = p
	l.tell(now)
}

// tell writes the lines that are due.
func (l *refusalLog) tell(now time.Time) {
	for why, p := range l.pending {
		if p.count > 0 && now.Sub(p.since) >= refusalPause {
			l.log.Warn("connections were refused", "reason", refusals[why], "count", p.count, "last_from", p.from)
			l.pending[why] = pendingRefusal{since: now}
		}
	}
}

// byReason are the counts.
func (l *refusalLog) byReason() map[Refusal]int64 { return maps.Clone(l.counts) }
