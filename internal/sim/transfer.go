package sim

import (
	"fmt"
	"math"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Transfer is a transfer from one end to another over one path.
type Transfer struct {
	From, To End
	Bytes    int64 // Endless: until it is stopped
	// LimitBytesPerSec bounds its rate; 0: unlimited.
	LimitBytesPerSec topo.Rate
	Entropy          uint64 // see Cluster.Path
	// Done is called when its last byte has arrived.
	Done func(*Flow)
}

// Move starts a transfer.
func (c *Cluster) Move(t Transfer) (*Flow, error) {
	path, err := c.Path(t.From, t.To, t.Entropy)
	if err != nil {
		return nil, err
	}
	if t.Bytes <= 0 || t.LimitBytesPerSec < 0 {
		return nil, pkgerr.Errorf("sim", "a transfer of %d bytes at %d bytes/s: want more than 0 bytes, and no rate below 0", t.Bytes, t.LimitBytesPerSec)
	}
	s := FlowSpec{Path: path, Bytes: t.Bytes, LimitBytesPerSec: t.LimitBytesPerSec}
	if t.Done != nil {
		s.End = func(f *Flow) { c.At(c.now+c.latency(path), func() { t.Done(f) }) }
	}
	return c.Start(s), nil
}

// Together runs transfers concurrently until all have arrived, and returns how long each
// took, in nanoseconds; 0 for those that did not end within mostNS. It is a round of a probe.
func (c *Cluster) Together(ts []Transfer, mostNS int64) ([]int64, error) {
	took, open := make([]int64, len(ts)), len(ts)
	flows := make([]*Flow, 0, len(ts))
	stop := func() {
		for _, f := range flows {
			f.Stop()
		}
	}
	start := c.now
	for i, t := range ts {
		done := t.Done
		t.Done = func(f *Flow) {
			took[i], open = c.now-start, open-1
			if done != nil {
				done(f)
			}
		}
		f, err := c.Move(t)
		if err != nil {
			stop()
			return nil, fmt.Errorf("transfer %d: %w", i, err)
		}
		flows = append(flows, f)
	}
	if !c.RunUntil(start+mostNS, func() bool { return open == 0 }) {
		stop()
	}
	return took, nil
}

// RoundTrip is how long a small message and its answer take now, in nanoseconds:
// the links' latencies there and back, and on links that queue the mean wait of
// an M/D/1 queue at the link's load, at most as long as a full queue takes to
// drain. Jitter only makes it longer.
func (c *Cluster) RoundTrip(from, to End, entropy uint64) (int64, error) {
	there, err := c.Path(from, to, entropy)
	if err != nil {
		return 0, err
	}
	back, err := c.Path(to, from, entropy)
	if err != nil {
		return 0, err
	}
	c.share()
	total := 0.0
	for _, l := range append(there, back...) {
		x := &c.links[l]
		if x.cap == 0 {
			return 0, pkgerr.Errorf("sim", "%s to %s: %s carries nothing", c.endName(from), c.endName(to), c.Name(l))
		}
		total += float64(x.latency) + c.wait(x)
	}
	if c.o.Jitter > 0 {
		total *= 1 + math.Abs(c.o.Jitter*c.rng.NormFloat64())
	}
	return int64(math.Round(total)), nil
}

// wait is how long a packet queues at a link, in nanoseconds.
func (c *Cluster) wait(x *link) float64 {
	load := x.load()
	if !x.queues || math.IsInf(x.cap, 1) || load <= 0 {
		return 0
	}
	packet, most := float64(c.o.PacketBytes)/x.cap*1e9, float64(c.o.QueueBytes)/x.cap*1e9
	busy := load / x.cap
	if busy >= 1-tiny {
		return most
	}
	return min(packet*busy/(2*(1-busy)), most)
}

// latency is the sum of the latencies on a path, one way.
func (c *Cluster) latency(path []Link) int64 {
	sum := int64(0)
	for _, l := range path {
		sum += c.links[l].latency
	}
	return sum
}
