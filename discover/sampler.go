package discover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/internal/sysfs"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Time limits of a sample. It usually takes a few milliseconds, or a few hundred if GPUs are
// asked.
const (
	devicePatience = 500 * time.Millisecond // for one device
	sampleLimit    = 2 * time.Second        // for all devices
)

// maxNotes bounds the notes of a sample.
const maxNotes = 32

// Sampler reads a host repeatedly: the counters of its ports, the state of its links, the load
// of its GPUs. To keep samples cheap it reads only files that existed when it first saw the
// topology. It is safe for concurrent use: calls wait for each other.
//
// A device whose driver does not answer within half a second is skipped, with a note, and is
// not read again until the driver answers. The other devices are read as usual.
type Sampler struct {
	target
	closeTree       func()
	patience, limit time.Duration

	mu     sync.Mutex // guards what is below
	closed bool
	of     *topo.Topology
	meters []*sysfs.Meter
	reader *meterReader
	hung   map[topo.ID]<-chan sysfs.Reading // of devices whose readers were given up: where the reading arrives if the driver returns after all
	gpus   gpuLoads
}

// NewSampler opens the host that the options name, as Discover does. It asks GPUs for their
// load if the host is this machine and Options.GPUs is a GPULoadSource.
func NewSampler(opts Options) (*Sampler, error) {
	p, closeTree, err := open(opts)
	if err != nil {
		return nil, err
	}
	s := &Sampler{target: p, closeTree: closeTree, patience: devicePatience, limit: sampleLimit, hung: map[topo.ID]<-chan sysfs.Reading{}}
	if source, ok := opts.GPUs.(GPULoadSource); ok && p.live && newPipeline(p, opts).wanted(topo.SourceNVML) {
		s.gpus.source = source
	}
	return s, nil
}

// Sample reads every port, interface, PCIe link and GPU of a topology of this host once. at is
// the time of the sample, relative to any fixed moment. What cannot be read is missing or nil,
// with a note. When the deadline of ctx passes, the rest is missing; when ctx is cancelled,
// Sample returns its error.
func (s *Sampler) Sample(ctx context.Context, t *topo.Topology, at time.Duration) (*counters.Sample, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, pkgerr.New("discover", "the sampler is closed")
	}
	limited, stop := context.WithTimeout(ctx, s.limit)
	defer stop()
	if t != s.of {
		s.setTopology(t)
	}
	out := &counters.Sample{AtNS: at.Nanoseconds(), Ports: []counters.Port{}, Links: []counters.Link{}, GPUs: []counters.GPU{}}
	if note := s.gpus.ask(limited, t); note != "" {
		out.Notes = append(out.Notes, note)
	}
	s.readMeters(limited, out)
	if note := s.gpus.wait(limited, t, out); note != "" {
		out.Notes = append(out.Notes, note)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, pkgerr.Errorf("discover", "sample: %w", ctx.Err())
	}
	if more := len(out.Notes) - maxNotes; more > 0 {
		out.Notes = append(out.Notes[:maxNotes], fmt.Sprintf("and %d more", more))
	}
	return out, nil
}

// setTopology makes the meters of a topology.
func (s *Sampler) setTopology(t *topo.Topology) {
	s.of = t
	s.meters = sysfs.Meters(s.tree, t)
	slices.SortStableFunc(s.meters, func(a, b *sysfs.Meter) int { return topo.NaturalCompare(string(a.ID), string(b.ID)) })
	s.gpus.absent = false
}

// readMeters reads all devices but those that hang.
func (s *Sampler) readMeters(ctx context.Context, out *counters.Sample) {
	timer := time.NewTimer(s.patience)
	defer timer.Stop()
	for i, m := range s.meters {
		if ctx.Err() != nil {
			out.Notes = append(out.Notes, fmt.Sprintf("%d devices were not read: the others took too long", len(s.meters)-i))
			return
		}
		if s.hangs(m.ID) {
			out.Notes = append(out.Notes, fmt.Sprintf("%s: still no answer from its driver", m.ID))
			continue
		}
		timer.Reset(s.patience)
		r := s.readMeter(ctx, m, timer.C)
		if r.Port != nil {
			out.Ports = append(out.Ports, *r.Port)
		}
		if r.Link != nil {
			out.Links = append(out.Links, *r.Link)
		}
		if r.Note != "" {
			out.Notes = append(out.Notes, r.Note)
		}
	}
}

// hangs says whether a device that was given up still hangs.
func (s *Sampler) hangs(id topo.ID) bool {
	back, hangs := s.hung[id]
	if !hangs {
		return false
	}
	select {
	case <-back:
		delete(s.hung, id)
		return false
	default:
		return true
	}
}

// readMeter has the reader read one device, or gives the reader up and leaves it behind.
func (s *Sampler) readMeter(ctx context.Context, m *sysfs.Meter, patience <-chan time.Time) sysfs.Reading {
	if s.reader == nil {
		s.reader = newMeterReader()
	}
	s.reader.ask <- m
	why := "its driver does not answer"
	select {
	case r := <-s.reader.answer:
		return r
	case <-patience:
	case <-ctx.Done():
		why = "no answer before the time was up"
	}
	s.hung[m.ID] = s.reader.answer
	close(s.reader.ask)
	s.reader = nil
	return sysfs.Reading{Note: fmt.Sprintf("%s: %s", m.ID, why)}
}

// Close closes the files and the GPU library. It does not wait for a reading that hangs; that
// ends when the driver returns.
func (s *Sampler) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.reader != nil {
		close(s.reader.ask)
		<-s.reader.done
		s.reader = nil
	}
	err := s.gpus.close(s.patience)
	s.closeTree()
	return err
}

// meterReader is a goroutine that reads devices one after the other. It shares nothing with its
// owner while it reads, so that the owner can abandon it if it hangs.
type meterReader struct {
	ask    chan *sysfs.Meter
	answer chan sysfs.Reading // buffered, so that an abandoned reader can end
	done   chan struct{}
}

func newMeterReader() *meterReader {
	h := &meterReader{ask: make(chan *sysfs.Meter), answer: make(chan sysfs.Reading, 1), done: make(chan struct{})}
	go func() {
		defer close(h.done)
		for m := range h.ask {
			h.answer <- m.Read()
		}
	}()
	return h
}
