//go:build unix

package session

import "syscall"

// Files is how many descriptors this process may have. Only a part is for peers: others are
// needed for connections of its own, for files and for those who monitor it.
func Files() int {
	const enough = 1 << 24
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return enough
	}
	return int(min(l.Cur, enough))
}
