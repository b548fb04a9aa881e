package replay

import (
	"errors"
	"fmt"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/kv"
	"github.com/topoctl/topoctl/internal/kv/serve"
)

// check says what does not fit together.
func (o *Options) check() error {
	c := o.Serve.Cache
	switch {
	case o.Workload == nil:
		return errors.New("no workload")
	case c == nil:
		return errors.New("no KV layout from prefill to decode")
	case len(o.Local) == 0 || len(o.Remote) == 0:
		return errors.New("no instances to move caches between: give regions for each, here and at peers")
	case o.Transfer < 0:
		return fmt.Errorf("a transfer timeout of %v", o.Transfer)
	}
	o.Serve.Prefill.Instances, o.Serve.Decode.Instances = len(o.Local), len(o.Remote)
	local, remote := &o.Serve.Prefill, &o.Serve.Decode
	localSide, remoteSide := c.Prefill, c.Decode
	want := memory.PeerWrite
	if o.Serve.Move == serve.Pull {
		o.Serve.Prefill.Instances, o.Serve.Decode.Instances = len(o.Remote), len(o.Local)
		local, remote, localSide, remoteSide, want = remote, local, remoteSide, localSide, memory.PeerRead
	}
	if o.Check {
		want = memory.PeerRead | memory.PeerWrite
	}
	return errors.Join(checkLocal(o.Local, c.Model, localSide, local.Pages), checkRemote(o.Remote, c.Model, remoteSide, remote.Pages, want))
}

// partBytes is what each region of an instance takes that has so many of them.
func partBytes(m kv.Model, s kv.Side, pages, regions int) (int64, error) {
	if regions < 1 || s.TP%regions != 0 {
		return 0, fmt.Errorf("%d regions for the %d ranks of an instance: the ranks must be split equally", regions, s.TP)
	}
	if pages > MaxPages {
		return 0, fmt.Errorf("%d pages: an instance has at most %d", pages, MaxPages)
	}
	all, err := RegionBytes(m, s, pages)
	return all / int64(regions), err
}

func checkLocal(instances [][]*engine.Region, m kv.Model, s kv.Side, pages int) error {
	need, err := partBytes(m, s, pages, len(instances[0]))
	if err != nil {
		return fmt.Errorf("memory here: %w", err)
	}
	seen := map[*engine.Region]bool{}
	for i, regions := range instances {
		if len(regions) != len(instances[0]) {
			return fmt.Errorf("memory here: instance 0 has %d regions, instance %d has %d: all need the same number", len(instances[0]), i, len(regions))
		}
		for _, r := range regions {
			switch {
			case r == nil:
				return fmt.Errorf("instance %d has no region here", i)
			case seen[r]:
				return fmt.Errorf("region %q is given twice: instances and ranks cannot share a region", r.Name())
			case r.Size() < need:
				return fmt.Errorf("region %q has %d bytes: %d pages take %d", r.Name(), r.Size(), pages, need)
			}
			seen[r] = true
		}
	}
	return nil
}

func checkRemote(instances [][]*engine.RemoteRegion, m kv.Model, s kv.Side, pages int, want memory.Grant) error {
	need, err := partBytes(m, s, pages, len(instances[0]))
	if err != nil {
		return fmt.Errorf("memory of peers: %w", err)
	}
	type place struct {
		peer   uint64
		region uint64
	}
	seen := map[place]bool{}
	for i, regions := range instances {
		if len(regions) != len(instances[0]) {
			return fmt.Errorf("memory of peers: instance 0 has %d regions, instance %d has %d: all need the same number", len(instances[0]), i, len(regions))
		}
		for _, r := range regions {
			if r == nil {
				return fmt.Errorf("instance %d has no region of a peer", i)
			}
			at, name := place{r.Peer().Epoch(), r.ID()}, fmt.Sprintf("region %q of peer %q", r.Name(), r.Peer().Name())
			switch {
			case seen[at]:
				return fmt.Errorf("%s is given twice: instances and ranks cannot share a region", name)
			case r.Size() < need:
				return fmt.Errorf("%s has %d bytes: %d pages take %d", name, r.Size(), pages, need)
			case r.Grant()&want != want:
				return fmt.Errorf("%s may be used for %q: the run needs %q", name, r.Grant(), want)
			}
			seen[at] = true
		}
	}
	return nil
}
