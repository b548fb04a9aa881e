package session

import "time"

// WithdrawAt looks at the credentials of sessions as watch does at that time, and says how many are
// of withdrawn ones.
func (s *Server) WithdrawAt(now time.Time) (n int) {
	s.withdraw(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.sessions {
		if v.withdrawn != "" {
			n++
		}
	}
	return n
}
