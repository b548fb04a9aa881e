package discover

import (
	"context"
	"fmt"
	"time"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// GPULoadSource is a GPUSource that also knows the load of the GPUs. Load may keep the library
// loaded until Close, and may be called again after Close. Notes are about single GPUs. Errors
// are as in GPUSource.
type GPULoadSource interface {
	Load(ctx context.Context) (loads []counters.GPULoad, notes []string, err error)
	Close() error
}

// gpuLoads asks a GPU library repeatedly, in at most one goroutine of its own: a call takes tens
// of milliseconds for each GPU, and one that hangs must not hang the sampler.
type gpuLoads struct {
	source  GPULoadSource     // nil: none
	absent  bool              // there is no library: not asked until the topology changes
	pending chan gpuLoadReply // buffered; nil: no answer is pending
	asked   bool              // for this sample
}

// gpuLoadReply is an answer.
type gpuLoadReply struct {
	gpus  []counters.GPULoad
	notes []string
	err   error
}

// ask requests the load of a topology's GPUs, unless the last request is still pending.
func (l *gpuLoads) ask(ctx context.Context, t *topo.Topology) (note string) {
	l.asked = false
	if l.source == nil || l.absent || len(t.GPUs) == 0 {
		return ""
	}
	if l.pending != nil {
		select {
		case <-l.pending: // it came after its sample
		default:
			return "the GPU library still does not answer"
		}
	}
	l.asked, l.pending = true, make(chan gpuLoadReply, 1)
	go func(source GPULoadSource, into chan<- gpuLoadReply) {
		defer func() {
			if r := recover(); r != nil {
				into <- gpuLoadReply{err: fmt.Errorf("the library panicked: %v", r)}
			}
		}()
		var a gpuLoadReply
		a.gpus, a.notes, a.err = source.Load(ctx)
		into <- a
	}(l.source, l.pending)
	return ""
}

// wait puts the answer into a sample. If there is none in time, a later ask receives it.
func (l *gpuLoads) wait(ctx context.Context, t *topo.Topology, out *counters.Sample) (note string) {
	if !l.asked {
		return ""
	}
	var a gpuLoadReply
	select {
	case a = <-l.pending:
		l.pending = nil
	case <-ctx.Done():
		return "the GPU library does not answer"
	}
	if libraryAbsent(a.err) {
		l.absent = true
		return ""
	}
	if a.err != nil {
		return fmt.Sprintf("GPU load: %v", a.err)
	}
	out.Notes = append(out.Notes, a.notes...)
	out.GPUs = identify(t, a.gpus)
	return ""
}

// identify gives the answers the IDs of a topology's GPUs, in its order. Answers about
// GPUs that it does not have are left out.
func identify(t *topo.Topology, answers []counters.GPULoad) []counters.GPU {
	gpus := []counters.GPU{}
	for i := range t.GPUs {
		g := &t.GPUs[i]
		for _, a := range answers {
			if a.BDF != nil && g.BDF != nil && *a.BDF == *g.BDF || (a.BDF == nil || g.BDF == nil) && a.UUID != "" && a.UUID == g.UUID {
				a.GPU.ID = g.ID
				gpus = append(gpus, a.GPU)
				break
			}
		}
	}
	return gpus
}

// close closes the library, unless it hangs.
func (l *gpuLoads) close(patience time.Duration) error {
	if l.source == nil {
		return nil
	}
	if l.pending != nil {
		select {
		case <-l.pending:
			l.pending = nil
		case <-time.After(patience):
			return pkgerr.New("discover", "the GPU library does not answer; it stays loaded")
		}
	}
	return l.source.Close()
}
