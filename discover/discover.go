package discover

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jaypipes/ghw"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/hosttree"
	"github.com/topoctl/topoctl/internal/base/replies"
	"github.com/topoctl/topoctl/internal/base/sysfs"
)

// Options say which host to look at and how. The zero value is this machine
// with every source that the program has.
type Options struct {
	// FS is another machine's file tree in memory (a fixture, an archive). It
	// must be an fs.ReadFileFS, an fs.ReadDirFS and an fs.ReadLinkFS.
	FS fs.FS
	// Root is the directory of another machine's captured file tree.
	Root string
	// HostRoot is where this machine's root directory is seen, for a process
	// in a container: its files are read there, netlink and NVML are asked.
	HostRoot string

	// Sources are the sources to use, by name; empty means all. sysfs is always used.
	Sources []string
	// GPUs is the vendor library to ask on this machine; nil means none.
	GPUs GPUSource

	// Now is the time of the observation; zero leaves CapturedAt unknown.
	Now time.Time
	// ToolVersion is the version of the program, for the document.
	ToolVersion string
	// Origin is what Topology.Origin will say; empty means "live" for this
	// machine and "capture" for another.
	Origin string
}

// GPUSource asks the GPU vendor's library. An error that has a method
// Absent() bool which says true means that there is no such library here:
// that is no failure.
type GPUSource interface {
	GPUs(ctx context.Context) (*GPUReport, error)
}

// GPUReport is what the GPU vendor's library says about a host's GPUs.
type GPUReport = replies.GPUReport

// libraryAbsent says whether a GPUSource's error means that there is no library here.
func libraryAbsent(err error) bool {
	absent, ok := errors.AsType[interface {
		error
		Absent() bool
	}](err)
	return ok && absent.Absent()
}

// sourceLimit is how long one source may take before it is given up: a driver
// that hangs must not hang the discovery.
const sourceLimit = 60 * time.Second

// sourceNames are the sources in the order in which they are merged.
var sourceNames = []topo.Source{
	topo.SourceSysfs, topo.SourceGHW, topo.SourceRDMAMap, topo.SourceNetlink, topo.SourceNVML,
}

// SourceNames are the names that Options.Sources may have.
func SourceNames() []string {
	names := make([]string, len(sourceNames))
	for i, s := range sourceNames {
		names[i] = string(s)
	}
	return names
}

// Discover looks at one host. It fails only where nothing can be had: a tree
// that is no host's, options that contradict each other, a cancelled context.
// Everything less is a warning in the topology. A deadline of ctx ends the
// sources that have not answered by then; what the others said is kept.
func Discover(ctx context.Context, opts Options) (*topo.Topology, error) {
	p, closeTree, err := open(opts)
	if err != nil {
		return nil, err
	}
	defer closeTree()
	t, _, err := newPipeline(p, opts).run(ctx)
	return t, err
}

// target is a host's files and what may be asked about that host.
type target struct {
	tree hosttree.Tree
	name string // for messages
	live bool   // the host is this machine
	// dir is this machine's root directory, for libraries that read files by
	// themselves: they follow links anywhere, so another machine's tree is not
	// for them. It is "" there.
	dir string
}

// open finds the host's file tree. The returned function closes it.
func open(opts Options) (target, func(), error) {
	fail := func(err error) (target, func(), error) { return target{}, nil, err }
	var given []string
	for _, o := range []struct {
		name string
		set  bool
	}{{"FS", opts.FS != nil}, {"Root", opts.Root != ""}, {"HostRoot", opts.HostRoot != ""}} {
		if o.set {
			given = append(given, o.name)
		}
	}
	if len(given) > 1 {
		return fail(fmt.Errorf("discover: options %s exclude each other", strings.Join(given, " and ")))
	}
	if opts.FS != nil {
		tree, ok := opts.FS.(hosttree.Tree)
		if !ok {
			return fail(fmt.Errorf("discover: options FS: %T is no host tree (needs ReadFile, ReadDir, ReadLink and Lstat)", opts.FS))
		}
		return target{tree: tree, name: "the tree"}, func() {}, nil
	}
	dir, live := "/", true
	switch {
	case opts.Root != "":
		dir, live = opts.Root, false
	case opts.HostRoot != "":
		dir = opts.HostRoot
	}
	if live && runtime.GOOS != "linux" {
		return fail(fmt.Errorf("discover: looking at the running machine is not supported on %s; use --root or --fixture", runtime.GOOS))
	}
	tree, err := hosttree.OpenDir(dir)
	if err != nil {
		return fail(fmt.Errorf("discover: %w", err))
	}
	p := target{tree: tree, name: dir, live: live}
	if live {
		p.dir = dir
	}
	return p, func() { _ = tree.Close() }, nil
}

// rawReplies are what the sources that are not files said, for a capture to keep.
// nil: not asked, or no answer.
type rawReplies struct {
	gpus    *replies.GPUReport
	netlink *replies.NetlinkReport
}

// pipeline is one run. Its functions are fields so that tests can break them.
type pipeline struct {
	target
	opts        Options
	limit       time.Duration
	read        func(hosttree.Tree, bool) *topo.Topology
	listPCI     func(dir string) (*ghw.PCIInfo, error)
	dumpNetlink func(context.Context) (*replies.NetlinkReport, error)
}

// newPipeline is what Discover and Capture run.
func newPipeline(p target, opts Options) pipeline {
	return pipeline{
		target: p, opts: opts, limit: sourceLimit,
		read: sysfs.Read, listPCI: listPCI, dumpNetlink: dumpNetlink,
	}
}

// run looks at the host. It has the order of all that Discover does: the sources that need
// nothing of the files answer while those are read, and what they say is merged into what the
// files show in the order of sourceNames.
func (p pipeline) run(ctx context.Context) (*topo.Topology, rawReplies, error) {
	var raw rawReplies
	if err := p.check(ctx); err != nil {
		return nil, raw, err
	}
	asking, stop := context.WithCancel(ctx)
	defer stop()
	numbers := make(chan map[pciNumber]bool, 1)
	names := p.ask(asking, topo.SourceGHW, func(ctx context.Context) outcome { return p.ghw(ctx, numbers) })
	interfaces := p.ask(asking, topo.SourceNetlink, p.netlink)
	gpus := p.ask(asking, topo.SourceNVML, p.nvml)

	t, err := p.sysfs(ctx)
	if err != nil {
		return nil, raw, err
	}
	numbers <- wantNames(t)
	devices := wantRDMA(t)
	rdma := p.ask(asking, topo.SourceRDMAMap, func(ctx context.Context) outcome { return p.rdmamap(ctx, devices) })

	for _, source := range []*pendingSource{names, rdma, interfaces, gpus} {
		o := source.wait(ctx)
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, rawReplies{}, fmt.Errorf("discover: %w", ctx.Err())
		}
		o.into(t, &raw)
	}
	nameGPUs(t)

	t.Tool = topo.Tool{Name: "topoctl", Version: p.opts.ToolVersion}
	t.Origin = p.origin()
	if !p.opts.Now.IsZero() {
		t.CapturedAt = new(p.opts.Now.UTC())
	}
	t.Derive()
	t.Complete = !slices.ContainsFunc(t.Warnings, topo.Warning.Partial)
	return t, raw, nil
}

func (p pipeline) origin() string {
	switch {
	case p.opts.Origin != "":
		return p.opts.Origin
	case p.live:
		return "live"
	}
	return "capture"
}
