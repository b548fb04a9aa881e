package discover

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/hosttree"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// outcome is the result of one source.
type outcome struct {
	report   topo.SourceReport
	warnings []topo.Warning
	// apply merges the answers and may complete the report; nil if there is
	// nothing to merge.
	apply func(*topo.Topology, *topo.SourceReport)
	raw   rawReplies
}

// into merges the outcome into the topology and keeps its raw replies.
func (o outcome) into(t *topo.Topology, raw *rawReplies) {
	t.Warnings = append(t.Warnings, o.warnings...)
	if o.apply != nil {
		o.apply(t, &o.report)
	}
	t.Sources = append(t.Sources, o.report)
	if o.raw.gpus != nil {
		raw.gpus = o.raw.gpus
	}
	if o.raw.netlink != nil {
		raw.netlink = o.raw.netlink
	}
}

// withStatus is an outcome that consists of a report only.
func withStatus(s topo.Source, status topo.SourceStatus, detail string) outcome {
	return outcome{report: topo.SourceReport{Source: s, Status: status, Detail: detail}}
}

// failed is the outcome of a source that was asked and gave no answer.
func failed(s topo.Source, evidence string, err error) outcome {
	o := withStatus(s, topo.StatusFailed, err.Error())
	o.warnings = []topo.Warning{{
		Code: topo.CodeSourceFailed, Detail: fmt.Sprintf("%s: %v", s, err), Evidence: evidence, Source: s,
	}}
	return o
}

// pendingSource is a source that runs in its own goroutine.
type pendingSource struct {
	source topo.Source
	limit  context.Context
	stop   context.CancelFunc
	done   chan outcome // buffered, so that the goroutine never waits for a reader
}

// ask starts a source. A library that panics counts as a failed source. If one
// hangs, wait gives it up; its goroutine ends when the library returns and
// shares nothing with others.
func (p pipeline) ask(ctx context.Context, s topo.Source, work func(context.Context) outcome) *pendingSource {
	limit, stop := context.WithTimeout(ctx, p.limit)
	a := &pendingSource{source: s, limit: limit, stop: stop, done: make(chan outcome, 1)}
	if !p.wanted(s) {
		a.done <- withStatus(s, topo.StatusSkipped, "not asked for")
		return a
	}
	go func() {
		defer func() {
			if r := recover(); r != nil {
				a.done <- failed(s, "", fmt.Errorf("the library panicked: %v", r))
			}
		}()
		a.done <- work(limit)
	}()
	return a
}

// wait returns the source's outcome, or gives the source up when ctx or the
// source's own time limit ends. An outcome that has arrived is never dropped.
func (a *pendingSource) wait(ctx context.Context) outcome {
	defer a.stop()
	select {
	case o := <-a.done:
		return o
	case <-ctx.Done():
	case <-a.limit.Done():
	}
	select {
	case o := <-a.done:
		return o
	default:
		return failed(a.source, "", errors.New("no answer in time; given up"))
	}
}

// wanted reports whether a source is to be used.
func (p pipeline) wanted(s topo.Source) bool {
	return s == topo.SourceSysfs || len(p.opts.Sources) == 0 || slices.Contains(p.opts.Sources, string(s))
}

// check refuses options and trees that cannot give a topology, before any
// source is started.
func (p pipeline) check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return pkgerr.Errorf("discover", "%w", err)
	}
	for _, name := range p.opts.Sources {
		if !slices.Contains(sourceNames, topo.Source(name)) {
			return pkgerr.Errorf("discover", "source %q is not known: want one of %s", name, strings.Join(SourceNames(), ", "))
		}
	}
	if _, err := fs.ReadDir(p.tree, "sys"); err != nil {
		return pkgerr.Errorf("discover", "%s is not a host's file tree (a directory that contains sys and proc): %w", p.name, err)
	}
	return p.checkDirectories()
}

// checkDirectories refuses a tree whose main directories are links that form a
// circle or leave the tree, which no kernel makes. The same in the entry of one
// device costs only that device.
func (p pipeline) checkDirectories() error {
	for _, dir := range []string{"sys/devices", "sys/bus/pci/devices", "sys/class/net", "sys/class/infiniband"} {
		_, err := p.tree.ReadDir(dir)
		if errors.Is(err, hosttree.ErrEscapes) || errors.Is(err, hosttree.ErrLoop) {
			return pkgerr.Errorf("discover", "%s is not a host's file tree: %w", p.name, err)
		}
	}
	return nil
}

// sysfs reads the host's files. It is the one source that must answer.
func (p pipeline) sysfs(ctx context.Context) (*topo.Topology, error) {
	done := make(chan *topo.Topology, 1)
	go func() { done <- p.read(p.tree, p.live) }()
	select {
	case t := <-done:
		t.Sources = append(t.Sources, topo.SourceReport{
			Source: topo.SourceSysfs, Status: topo.StatusOK,
			Detail: fmt.Sprintf("%d PCI functions", len(t.PCIDevices)),
		})
		if slices.ContainsFunc(t.Warnings, topo.Warning.Partial) {
			t.Sources[len(t.Sources)-1].Status = topo.StatusPartial
		}
		return t, nil
	case <-ctx.Done():
		return nil, pkgerr.Errorf("discover", "reading the host's files: %w", ctx.Err())
	}
}
