package serve

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"

	"github.com/topoctl/topoctl/internal/direction"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/sched"
	"github.com/topoctl/topoctl/internal/sim"
	"github.com/topoctl/topoctl/pathsel"
)

// mover moves caches through a cluster.
type mover struct {
	c       *sim.Cluster
	s       *Spec
	engines map[int]*sim.Engine
	// ways are the possible lane options of a pair of ranks, from the one that starts: one of
	// them is drawn for each transfer.
	ways   map[[2]Rank][]pathsel.LaneOptions
	posted map[Rank]int64 // until when a rank is busy starting transfers
	lanes  map[[2]sim.End]*Lane
	rng    *rand.Rand

	transfers, pieces int64
}

// move is a transfer of all ranks.
type move struct {
	left  int
	began int64
	err   error
	done  func(int64, error)
}

func (x *move) end(began int64, err error) {
	x.left--
	x.began = min(x.began, began)
	x.err = cmp.Or(x.err, err)
	if x.left == 0 {
		x.done(x.began, x.err)
	}
}

// Move implements serve.Mover.
func (m *mover) Move(t Transfer, done func(int64, error)) {
	if m.s.Network.Choice == Infinite {
		done(m.c.Now(), nil)
		return
	}
	x := &move{left: len(t.Pairs), began: sim.Never, done: done}
	for _, p := range t.Pairs {
		m.transfers++
		m.pieces += p.Pieces
		// Who starts it: the one that pushes, or pulls.
		local, remote := m.s.Prefill[t.Prefill][p.PrefillRank], m.s.Decode[t.Decode][p.DecodeRank]
		kind := direction.Write
		if t.Pull {
			local, remote, kind = remote, local, direction.Read
		}
		at := max(m.c.Now(), m.posted[local]) + m.s.SetupNS + m.s.PieceNS*p.Pieces
		m.posted[local] = at
		m.c.At(at, func() { m.send(local, remote, kind, p.Bytes, x) })
	}
}

// send moves bytes between two ranks.
func (m *mover) send(local, remote Rank, kind direction.Direction, bytes int64, x *move) {
	now := m.c.Now()
	if local.Host == remote.Host {
		from, to := sim.End{Host: local.Host, Location: local.Location}, sim.End{Host: remote.Host, Location: remote.Location}
		if kind == direction.Read {
			from, to = to, from
		}
		if _, err := m.c.Move(sim.Transfer{From: from, To: to, Bytes: bytes, Done: func(*sim.Flow) { x.end(now, nil) }}); err != nil {
			x.end(now, err)
		}
		return
	}
	ways := m.ways[[2]Rank{local, remote}]
	way := ways[0]
	if len(ways) > 1 {
		way = ways[m.rng.IntN(len(ways))]
	}
	e := m.engines[local.Host]
	_, err := e.Submit(sim.Work{Peer: remote.Host, Local: local.Location, Remote: remote.Location, Kind: kind, Bytes: bytes,
		LaneOptions: way, DeadlineNS: cmp.Or(m.s.TransferNS, 600_000_000_000), Done: func(j *sched.Job) { m.finished(e, local.Host, j, x) }})
	if err != nil {
		x.end(now, err)
	}
}

// finished accounts for what a job used.
func (m *mover) finished(e *sim.Engine, host int, j *sched.Job, x *move) {
	began := j.Result.EndNS
	for _, u := range j.Result.Lanes {
		from, to := e.LaneEnds(u.Lane)
		l := m.lanes[[2]sim.End{from, to}]
		if l == nil {
			l = &Lane{Name: m.c.Names()[host] + ":" + e.LaneName(u.Lane), From: from, To: to}
			m.lanes[[2]sim.End{from, to}] = l
		}
		l.Bytes += u.Bytes
		l.Slices += u.Slices
		l.Retries += u.Retries
		began = min(began, u.FirstNS)
	}
	x.end(began, j.Result.Err)
}

// prepare makes the engines, and asks pathsel about every pair of ranks that exchange
// something.
func (m *mover) prepare() error {
	if len(m.s.Decode) == 0 || m.s.Network.Choice == Infinite {
		return nil
	}
	for _, p := range m.s.Prefill {
		for _, d := range m.s.Decode {
			for _, pair := range m.s.Serve.Cache.Pairs() {
				local, remote := p[pair.Prefill], d[pair.Decode]
				if m.s.Serve.Move == Pull {
					local, remote = remote, local
				}
				if err := m.pair(local, remote); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (m *mover) pair(local, remote Rank) error {
	key := [2]Rank{local, remote}
	if m.ways[key] != nil || local.Host == remote.Host {
		return nil
	}
	if m.engines[local.Host] == nil {
		e, err := m.c.Engine(local.Host, m.s.Engine)
		if err != nil {
			return pkgerr.Errorf("predict", "%w", err)
		}
		m.engines[local.Host] = e
	}
	ways, err := m.lanesOf(local, remote)
	if err != nil {
		return pkgerr.Errorf("predict", "%s %s to %s %s: %w", m.c.Names()[local.Host], local.Location, m.c.Names()[remote.Host], remote.Location, err)
	}
	m.ways[key] = ways
	return nil
}

// lanesOf are the possible lane options of two ranks.
func (m *mover) lanesOf(local, remote Rank) ([]pathsel.LaneOptions, error) {
	n := &m.s.Network
	pair, err := m.c.Pair(local.Host, remote.Host)
	if err != nil {
		return nil, err
	}
	all := pathsel.LaneOptions{Local: n.Ports[local.Host], Remote: n.Ports[remote.Host]}
	set, err := pair.LanesOf(local.Location, remote.Location, all)
	if err != nil {
		return nil, err
	}
	// pathsel would use other ports if these did not reach each other.
	may := func(ports []topo.ID, id topo.ID) bool { return len(ports) == 0 || slices.Contains(ports, id) }
	var single []pathsel.LaneOptions
	for i := range set.Lanes {
		l := &set.Lanes[i]
		_, uncabled := m.c.Path(sim.End{Host: local.Host, Port: l.Local}, sim.End{Host: remote.Host, Port: l.Remote}, 0)
		if uncabled == nil && may(all.Local, l.Local) && may(all.Remote, l.Remote) {
			single = append(single, pathsel.LaneOptions{Local: []topo.ID{l.Local}, Remote: []topo.ID{l.Remote}})
		}
	}
	switch {
	case len(single) == 0:
		return nil, fmt.Errorf("no lane of the fabric joins the ports that may be used: %s and %s", portNames(all.Local), portNames(all.Remote))
	case n.Choice == BestNIC:
		return single[:1], nil
	case n.Choice == RandomNIC:
		return single, nil
	}
	return []pathsel.LaneOptions{all}, nil
}

func portNames(ids []topo.ID) string {
	if len(ids) == 0 {
		return "any"
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = id.Name()
	}
	return strings.Join(names, ", ")
}
