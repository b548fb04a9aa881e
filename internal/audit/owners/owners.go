// Package owners tells which processes use which network ports of the running host: their queue
// pairs on RDMA devices, their TCP connections and how much they moved, and the variables by
// which processes were told what to use. It needs no privileges: what belongs to other users is
// left out, with a note.
package owners

import "net/netip"

// QueuePair is a queue pair of a process.
type QueuePair struct {
	Device string `json:"device"` // "mlx5_0"
	Port   int    `json:"port"`   // 0 not known
	PID    int    `json:"pid"`    // in this process's namespace
	Type   string `json:"type"`   // "RC", "UD"; "" not known
	State  string `json:"state"`  // "RTS"; "" not known
}

// Connection is a TCP connection. What it moved counts from its beginning.
type Connection struct {
	Local         netip.Addr
	LocalPort     uint16
	PeerPort      uint16
	Peer          netip.Addr
	Inode         uint32
	Cookie        uint64
	SentBytes     uint64 // acknowledged by the peer
	ReceivedBytes uint64
	PID           int // 0: a process of another user or container, or the kernel
}

// Process is a process with what it is told by variables.
type Process struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
	// Variables are those of engines that choose ports and transports, by name.
	Variables map[string]string `json:"variables"`
	// Readable says whether its variables could be read.
	Readable bool `json:"readable"`
}

// Snapshot is what was seen at one time.
type Snapshot struct {
	QueuePairs  []QueuePair
	Connections []Connection
	Processes   map[int]*Process // owners, and all others that have such variables
	// Notes say what could not be read, and why.
	Notes []string
	// NoQueuePairs says that the kernel did not tell of queue pairs: that there are none is not known.
	NoQueuePairs bool
	// NoConnections says the same of TCP connections.
	NoConnections bool
}

// Absorb adds what a later look has seen: a queue pair that is gone was there, and a connection
// that is closed moved what it moved.
func (s *Snapshot) Absorb(later *Snapshot) {
	if s.Processes == nil {
		s.Processes = map[int]*Process{}
	}
	qps := map[QueuePair]int{}
	for _, q := range s.QueuePairs {
		qps[q.key()]++
	}
	for _, q := range later.QueuePairs {
		if k := q.key(); qps[k] > 0 {
			qps[k]-- // seen before
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
	seen := map[string]bool{}
	for _, n := range s.Notes {
		seen[n] = true
	}
	for _, n := range later.Notes {
		if !seen[n] {
			s.Notes = append(s.Notes, n)
		}
	}
	s.NoQueuePairs, s.NoConnections = s.NoQueuePairs || later.NoQueuePairs, s.NoConnections || later.NoConnections
}

// key is a queue pair but for its state, which changes.
func (q QueuePair) key() QueuePair {
	q.State = ""
	return q
}
