package discover

import (
	"context"
	"errors"
	"fmt"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/replies"
)

// errNoNetlink says that this system has no netlink to ask.
var errNoNetlink = errors.New("netlink exists on linux only")

// netlink asks the kernel, or replays what a capture recorded.
func (p pipeline) netlink(ctx context.Context) outcome {
	const s = topo.SourceNetlink
	report := &replies.NetlinkReport{}
	recorded := false
	switch {
	case p.live:
		var err error
		if report, err = p.dumpNetlink(ctx); errors.Is(err, errNoNetlink) {
			return withStatus(s, topo.StatusAbsent, err.Error())
		} else if err != nil {
			return failed(s, "netlink", err)
		}
	default:
		found, err := replay(p.tree, replies.NetlinkPath, replies.SchemaNetlink, report)
		if err == nil && found {
			err = checkNetlink(report)
		}
		if err != nil {
			return failed(s, replies.NetlinkPath, err)
		}
		if !found {
			return withStatus(s, topo.StatusAbsent, "the tree has no recorded netlink answers")
		}
		recorded = true
	}
	o := withStatus(s, topo.StatusOK, fmt.Sprintf("%d interfaces, %d addresses, %d routes, %d RDMA devices",
		len(report.Links), len(report.Addresses), len(report.Routes), len(report.RDMA)))
	if len(report.Warnings) > 0 {
		o.report.Status = topo.StatusPartial
	}
	o.report.Recorded = recorded
	o.warnings = fromSource(s, report.Warnings)
	o.said.netlink = report
	o.apply = func(t *topo.Topology, r *topo.SourceReport) { applyNetlink(t, report) }
	return o
}

// Bounds of a recorded report: far above any host, far below harm.
const (
	maxInterfaces = 1 << 16
	maxVFs        = 1 << 16
	maxGPUs       = 1024
	maxNVLinks    = 1 << 8
	maxWarnings   = 1000
)

// checkNetlink refuses a recorded report whose size makes no sense.
func checkNetlink(r *replies.NetlinkReport) error {
	for _, x := range []struct {
		what   string
		n, max int
	}{
		{"links", len(r.Links), maxInterfaces},
		{"addresses", len(r.Addresses), 4 * maxInterfaces},
		{"routes", len(r.Routes), 4 * maxInterfaces},
		{"rdma", len(r.RDMA), maxInterfaces},
		{"warnings", len(r.Warnings), maxWarnings},
	} {
		if x.n > x.max {
			return fmt.Errorf("%d %s, more than %d", x.n, x.what, x.max)
		}
	}
	for i := range r.Links {
		if n := len(r.Links[i].VFs); n > maxVFs {
			return fmt.Errorf("link %q has %d vfs, more than %d", r.Links[i].Name, n, maxVFs)
		}
	}
	return nil
}

// fromSource marks the warnings that came with an answer as that source's.
func fromSource(s topo.Source, warnings []topo.Warning) []topo.Warning {
	out := make([]topo.Warning, len(warnings))
	for i, w := range warnings {
		w.Source = s
		out[i] = w
	}
	return out
}
