package session

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"time"

	"github.com/topoctl/topoctl/engine/internal/peertls"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/trust"
)

// Refusal is why a connection was not let in.
type Refusal string

// The refusals.
const (
	RefusedToken       Refusal = "wrong_token" // no token, or not ours
	RefusedCertificate Refusal = "certificate" // none, not one of our CA, or ours is not the peer's
	RefusedMalformed   Refusal = "malformed"   // not a handshake of ours, or one against the rules
	RefusedVersion     Refusal = "version"     // no version in common
	RefusedSlow        Refusal = "slow"        // not through the handshake in time
	RefusedBusy        Refusal = "busy"        // too many are in their handshake: it has made room
	RefusedLimit       Refusal = "limit"       // of sessions, or of data connections of one
	RefusedMemory      Refusal = "memory"      // none is left for the peer
	RefusedSockets     Refusal = "sockets"     // this process has no descriptors left
	RefusedEnded       Refusal = "ended"       // for a session that is over, or not the peer's
	RefusedGone        Refusal = "gone"        // the peer closed it before the end of the handshake
)

// RefusedQuota is why a call was refused of a peer that has its share of something: of the
// connections of a transport, of the calls that run, of the notifications that wait. Calls are
// refused as RefusedMemory and RefusedSlow, too.
const RefusedQuota Refusal = "quota"

// RefusedAltered is why a session's connection was closed: bytes came, at either end, that the
// other end had not sent. Before a connection has proven whose it is that may be its dialler's doing.
const RefusedAltered Refusal = "altered"

// refusals are those of connections, and what the log says. Those without a text are no sign that
// anything is wrong: a dialler tries several routes and drops all but one, a peer does not
// know yet that its session is over.
var refusals = map[Refusal]string{
	RefusedToken:       "its token is not ours",
	RefusedCertificate: "its certificate or ours was not accepted",
	RefusedMalformed:   "it does not speak this protocol",
	RefusedVersion:     "it speaks no version that this engine does",
	RefusedSlow:        "it did not end its handshake in time",
	RefusedBusy:        "too many connections are in their handshake: these made room for others",
	RefusedLimit:       "there are as many sessions or connections as are taken, or as one peer may have",
	RefusedMemory:      "there is no memory left for sessions of this peer",
	RefusedSockets:     "too many files are open in this process",
	RefusedEnded:       "",
	RefusedGone:        "",
}

// refusedCalls are those of calls.
var refusedCalls = map[Refusal]string{
	RefusedMemory: "there was no memory left for them",
	RefusedQuota:  "the peer has all that one may have",
	RefusedSlow:   "they did not arrive in time",
}

// altered are those of connections of sessions.
var altered = map[Refusal]string{
	RefusedAltered: "the tag of a TLS record is wrong: someone alters traffic between the hosts, or a network adapter is faulty. " +
		"The session goes on over another connection",
}

// refused carries the reason to where it is counted.
type refused struct{ why Refusal }

func (r refused) Error() string { return string(r.why) }

// refusalOf says which refusal an error of the handshake is.
func refusalOf(err error) Refusal {
	var r refused
	var full *transport.FullError
	switch {
	case errors.As(err, &r):
		return r.why
	case errors.As(err, &full) && full.What == "memory":
		return RefusedMemory
	case full != nil:
		return RefusedLimit
	case errors.Is(err, trust.ErrCertificate):
		return RefusedCertificate
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

// RefusalLog counts refusals, and says so in the log: the first at once, those that follow
// within refusalPause together. Of what a stranger has sent only the names of its certificate are
// in it, which are short and can be printed.
type RefusalLog struct {
	log     *slog.Logger
	message string // "connections were refused"
	texts   map[Refusal]string
	counts  map[Refusal]int64
	pending map[Refusal]pendingRefusal
}

// pendingRefusal is what the log has not said yet.
type pendingRefusal struct {
	since time.Time // of the last line
	count int64
	// Of the last one:
	from, cause string
}

// NewRefusalLog makes one; if log is nil it only counts. Its owner must guard it.
func NewRefusalLog(log *slog.Logger, message string, texts map[Refusal]string) RefusalLog {
	l := RefusalLog{log: log, message: message, texts: texts, counts: map[Refusal]int64{}, pending: map[Refusal]pendingRefusal{}}
	for why := range texts {
		l.counts[why] = 0
	}
	return l
}

// Add counts one.
func (l *RefusalLog) Add(why Refusal, err error, from fmt.Stringer, now time.Time) {
	l.counts[why]++
	if l.log == nil || l.texts[why] == "" {
		return
	}
	p := l.pending[why]
	p.count++
	p.from, p.cause = from.String(), ""
	if refusal, ok := errors.AsType[*peertls.Error](err); ok {
		p.cause = refusal.Error()
	}
	l.pending[why] = p
	l.Tell(now)
}

// Tell writes the lines that are due.
func (l *RefusalLog) Tell(now time.Time) {
	for why, p := range l.pending {
		if p.count > 0 && now.Sub(p.since) >= refusalPause {
			about := []any{"reason", l.texts[why], "count", p.count, "last_from", p.from}
			if p.cause != "" {
				about = append(about, "last_error", p.cause)
			}
			l.log.Warn(l.message, about...)
			l.pending[why] = pendingRefusal{since: now}
		}
	}
}

// byReason are the counts.
func (l *RefusalLog) byReason() map[Refusal]int64 { return maps.Clone(l.counts) }
