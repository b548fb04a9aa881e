package discover

import (
	"context"
	"errors"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jaypipes/ghw"

	"github.com/topoctl/topoctl/discover/internal/sysfs"
	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/hosttree"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Options say which host to look at and how. The zero value is this machine
// with every source that the program has.
type Options struct {
	// FS is another machine's file tree: a fixture or an archive. It must
	// implement fs.ReadFileFS, fs.ReadDirFS and fs.ReadLinkFS.
	FS fs.FS
	// Root is the directory of another machine's captured file tree.
	Root string
	// HostRoot is where this machine's root directory is mounted, for a process
	// in a container. Files are read there; netlink and NVML are asked directly.
	HostRoot string

	// Sources are the names of the sources to use; empty means all. sysfs is always used.
	Sources []string
	// GPUs is the GPU vendor's library to ask on this machine; nil means none.
	GPUs GPUSource

	// Now is the time of the observation; if it is zero, CapturedAt stays unknown.
	Now time.Time
	// ToolVersion is the program's version, for Topology.Tool.
	ToolVersion string
	// Origin is the value of Topology.Origin; empty means "live" for this
	// machine and "capture" for another one.
	Origin string
}

// GPUSource asks the GPU vendor's library. If the error has a method
// Absent() bool that returns true, this machine has no such library, which is
// not a failure.
type GPUSource interface {
	GPUs(ctx context.Context) (*replies.GPUReport, error)
}

// libraryAbsent says whether a GPUSource's error means that there is no library here.
func libraryAbsent(err error) bool {
	absent, ok := errors.AsType[interface {
		error
		Absent() bool
	}](err)
	return ok && absent.Absent()
}

// sourceLimit is how long one source may take, so that a driver that hangs
// does not hang the discovery.
const sourceLimit = 60 * time.Second

// sourceNames are the sources in the order in which they are merged.
var sourceNames = []topo.Source{
	topo.SourceSysfs, topo.SourceGHW, topo.SourceRDMAMap, topo.SourceNetlink, topo.SourceNVML,
}

// SourceNames are the names that Options.Sources accepts.
func SourceNames() []string {
	names := make([]string, len(sourceNames))
	for i, s := range sourceNames {
		names[i] = string(s)
	}
	return names
}

// Discover looks at one host. It fails only if there is nothing to return: the
// file tree is not a host's, the options contradict each other, or ctx is
// cancelled. Any smaller problem is a warning in the topology. When the deadline
// of ctx passes, sources that have not answered are given up; the answers of the
// others are kept.
func Discover(ctx context.Context, opts Options) (*topo.Topology, error) {
	p, closeTree, err := open(opts)
	if err != nil {
		return nil, err
	}
	defer closeTree()
	t, _, err := newPipeline(p, opts).run(ctx)
	return t, err
}

// target is the host to look at: its files, and what else may be asked about it.
type target struct {
	tree hosttree.Tree
	name string // for messages
	live bool   // the host is this machine
	// dir is this machine's root directory, for libraries that open files
	// themselves. They follow links anywhere, so it is "" for another machine.
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
		return fail(pkgerr.Errorf("discover", "options %s exclude each other", strings.Join(given, " and ")))
	}
	if opts.FS != nil {
		tree, ok := opts.FS.(hosttree.Tree)
		if !ok {
			return fail(pkgerr.Errorf("discover", "options FS: %T is not a host tree (it needs ReadFile, ReadDir, ReadLink and Lstat)", opts.FS))
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
		return fail(pkgerr.Errorf("discover", "looking at the running machine is not supported on %s; use --root or --fixture", runtime.GOOS))
	}
	tree, err := hosttree.OpenDir(dir)
	if err != nil {
		return fail(pkgerr.Errorf("discover", "%w", err))
	}
	p := target{tree: tree, name: dir, live: live}
	if live {
		p.dir = dir
	}
	return p, func() { _ = tree.Close() }, nil
}

// rawReplies are the answers of netlink and NVML as they came, for a capture.
// nil means not asked, or no answer.
type rawReplies struct {
	gpus    *replies.GPUReport
	netlink *replies.NetlinkReport
}

// pipeline is one run. Its functions are fields so that tests can replace them.
type pipeline struct {
	target
	opts        Options
	limit       time.Duration
	read        func(hosttree.Tree, bool) *topo.Topology
	listPCI     func(dir string) (*ghw.PCIInfo, error)
	dumpNetlink func(context.Context) (*replies.NetlinkReport, error)
}

// newPipeline is the pipeline that Discover and Capture run.
func newPipeline(p target, opts Options) pipeline {
	return pipeline{
		target: p, opts: opts, limit: sourceLimit,
		read: sysfs.Read, listPCI: listPCI, dumpNetlink: dumpNetlink,
	}
}

// run looks at the host, in this order: sources that do not depend on the files are asked
// while the files are read; then the answers of all sources are merged in the order of
// sourceNames.
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
			return nil, rawReplies{}, pkgerr.Errorf("discover", "%w", ctx.Err())
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
