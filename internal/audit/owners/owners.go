// Package owners tells which processes use which network ports of the running host: their queue
// pairs on RDMA devices, their TCP connections and how much they moved, and the variables by
// which processes were told what to use. It needs no privileges: what belongs to other users is
// left out, with a note.
package owners

import (
	"net/netip"
	"slices"
)

// QueuePair is a queue pair of a process.
type QueuePair struct {
	Device string // "mlx5_0"
	Port   int    // 0 not known
	PID    int    // in this process's namespace
}

// Connection is a TCP connection. What it moved counts from its beginning.
type Connection struct {
	Local         netip.Addr
	Inode         uint32
	Cookie        uint64
	SentBytes     uint64 // acknowledged by the peer
	ReceivedBytes uint64
	PID           int // 0: a process of another user or container, or the kernel
}

// Process is a process with its variables.
type Process struct {
	PID  int
	Name string
	// Variables are those that choose the ports and transports of engines, by name.
	Variables map[string]string
	// Readable says whether its variables could be read.
	Readable bool
}

// Snapshot is what was seen at one time.
type Snapshot struct {
	QueuePairs  []QueuePair
	Connections []Connection
	Processes   map[int]*Process // owners, and all others that have such variables
	// Notes say what could not be read, and why.
	Notes []string
	// NoQueuePairs says that the kernel did not list queue pairs, so that there may be some.
	NoQueuePairs bool
}

// Absorb adds what a later look has seen: a queue pair that is gone was there, and a connection
// that is closed moved what it moved.
func (s *Snapshot) Absorb(later *Snapshot) {
	if s.Processes == nil {
		s.Processes = map[int]*Process{}
	}
	qps := map[QueuePair]int{}
	for _, q := range s.QueuePairs {
		qps[q]++
	}
	for _, q := range later.QueuePairs {
		if qps[q] > 0 {
			qps[q]-- // seen before
			continue
		}
		s.QueuePairs = append(s.QueuePairs, q)
	}
	at := map[uint64]int{}
	for i := range s.Connections {
		at[s.Connections[i].Cookie] = i
	}
	for _, c := range later.Connections {
		i, known := at[c.Cookie]
		if !known {
			s.Connections = append(s.Connections, c)
			continue
		}
		was := &s.Connections[i]
		was.SentBytes, was.ReceivedBytes = max(was.SentBytes, c.SentBytes), max(was.ReceivedBytes, c.ReceivedBytes)
		if was.PID == 0 {
			was.PID = c.PID
		}
	}
	for pid, p := range later.Processes {
		if old := s.Processes[pid]; old == nil || p.Readable {
			s.Processes[pid] = p
		}
	}
	for _, n := range later.Notes {
		if !slices.Contains(s.Notes, n) {
			s.Notes = append(s.Notes, n)
		}
	}
	s.NoQueuePairs = s.NoQueuePairs || later.NoQueuePairs
}
