package session

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/topoctl/topoctl/engine/internal/peertls"
	"github.com/topoctl/topoctl/engine/trust"
)

// byeWithdrawn is in a bye: what the session's peer has proven is not accepted any more.
const byeWithdrawn = 1

// standing is whether a peer would be let in now with what it has proven.
type standing struct {
	proof *peertls.Proof
	judgment
	by    *trust.Credentials // that the judgment is by, nil: none yet
	since time.Time          // something was withdrawn
	asked bool               // the peer, to prove something else
	ended bool
}

type judgment struct {
	withdrawn string // of the proof, "" nothing
	renewable bool   // the peer may have something else by now
}

// withdraw ends the sessions of peers whose credentials were withdrawn, after a while. A peer that
// may have renewed ones is asked for them before, by closing the connection: it goes on with its
// session over another one if it has. They are not all asked at once: each costs a handshake.
func (s *Server) withdraw(now time.Time) {
	creds, grace := s.o.Identity.credentials(), s.o.Limits.Withdrawn
	judged := map[*peertls.Proof]judgment{}
	s.mu.Lock()
	for _, v := range s.sessions {
		if v.by != creds {
			judged[v.proof] = judgment{}
		}
	}
	s.mu.Unlock()
	for p := range judged { // certificates take their time
		var j judgment
		j.withdrawn, j.renewable = p.Withdrawn(creds)
		judged[p] = j
	}
	lines := map[string]int{} // of the log, by what they say of how many sessions
	var ask, end []*Session
	s.mu.Lock()
	for _, v := range s.sessions {
		if j, ok := judged[v.proof]; ok {
			if j.withdrawn != v.withdrawn && j.withdrawn != "" {
				v.since, v.asked = now, false
				unless := ""
				if j.renewable {
					unless = ", unless their peers have renewed it"
				}
				lines[fmt.Sprintf("sessions of withdrawn %s end in %v%s", j.withdrawn, grace, unless)]++
			}
			v.judgment, v.by = j, creds
		}
		switch left := grace - now.Sub(v.since); {
		case v.withdrawn == "" || v.ended:
		case left <= 0:
			v.ended = true
			lines[fmt.Sprintf("sessions of withdrawn %s ended", v.withdrawn)]++
			end = append(end, v.Session)
		case v.renewable && !v.asked && (left < grace/2 || rand.N(4) == 0):
			v.asked = true
			ask = append(ask, v.Session)
		}
	}
	s.mu.Unlock()
	for line, n := range lines {
		if s.o.Logger != nil {
			s.o.Logger.Warn(line, "count", n)
		}
	}
	for _, v := range ask { // it connects again
		v.mu.Lock()
		l := v.link
		v.mu.Unlock()
		if l != nil {
			l.close()
		}
	}
	for _, v := range end {
		s.wg.Go(func() { v.leave(byeWithdrawn) })
	}
}

// proofOf is what an arrival has proven.
func (s *Server) proofOf(a *arrival) *peertls.Proof {
	var p peertls.Proof
	if c, ok := a.conn.(*secured); ok {
		p = s.o.Identity.TLS.Proof(c.Conn)
	}
	if len(a.sec.key) > 0 {
		p.Token = &trust.Token{Name: a.peer.Token, Secret: a.sec.key}
	}
	return &p
}
