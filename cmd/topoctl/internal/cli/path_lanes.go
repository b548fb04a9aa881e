package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/explain"
	"github.com/topoctl/topoctl/internal/explain/show"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/pathsel"
)

// lanes pairs the ports of this host and the peer.
func (o *pathOptions) lanes(ctx context.Context, h *pathsel.Host, d *show.Document, src pathsel.Location) error {
	remote, err := o.loadPeer(ctx)
	if err != nil {
		return err
	}
	there, err := pathsel.New(remote, pathsel.Options{Transport: h.Transport(), Overlay: o.measured.OfPeer(remote)})
	if err != nil {
		return fmt.Errorf("--peer: %w", pkgerr.Plain(err))
	}
	dst, err := peerLocation(there, src, o.dst)
	if err != nil {
		err = fmt.Errorf("peer %s: %w", o.peer, pkgerr.Plain(err))
		if all := there.Locations(); o.dst == "" && len(all) > 0 {
			return withHint(err, "use %q to name memory of the peer", fmt.Sprintf("topoctl path %s %s --peer %s", o.src, all[0], o.peer))
		}
		return err
	}
	fabric, err := o.ReadFabric(ctx, o.fabric)
	if err != nil {
		return err
	}
	local := cmp.Or(d.Host, "this host")
	name := cmp.Or(remote.Host.Name, "the peer")
	pair, err := pathsel.Connect(h, there, pathsel.PairOptions{Fabric: fabric, LocalName: local, RemoteName: name})
	if err != nil {
		return err
	}
	set, err := pair.Lanes(src, dst)
	if set == nil || err != nil && !errors.Is(err, pathsel.ErrNoLane) {
		return err
	}
	if none := (*pathsel.NoLaneError)(nil); errors.As(err, &none) {
		d.Why = fmt.Sprintf("%s of %s does not reach %s of %s over %s: %s", src, local, dst, name, strings.ToUpper(string(set.Transport)), none.Short)
		if none.Hint != "" {
			d.Hint(none.Reason.Code, none.Reason.Evidence, "%s", none.Hint)
		}
	}
	d.Lanes, d.Request.Destination, d.Request.Peer = set, dst.Node(), name
	d.Request.Bytes, d.Request.Policy = &o.bytes, o.policy
	d.Transfer = show.Divide(set, o.bytes, o.policy)
	if o.most > 0 && len(set.Lanes) > max(o.most, set.Chosen) {
		cut := *set
		d.More = len(set.Lanes) - max(o.most, set.Chosen)
		cut.Lanes = set.Lanes[:max(o.most, set.Chosen)]
		d.Lanes = &cut
	}
	return nil
}

// loadPeer reads the other host. Its warnings are marked as the peer's.
func (o *pathOptions) loadPeer(ctx context.Context) (*topo.Topology, error) {
	t, err := o.Named(ctx, o.peer)
	if _, _, bad := net.SplitHostPort(o.peer); bad == nil && errors.Is(err, fs.ErrNotExist) {
		return nil, withHint(fmt.Errorf("--peer %w", err), `--peer needs a file, not an address; create it with "topoctl discover -o json" on the other host`)
	}
	if err != nil {
		return nil, fmt.Errorf("--peer %w", err)
	}
	if !o.Globals.Quiet {
		printWarnings(o.Streams.Err, "peer: ", t.Warnings)
	}
	return t, nil
}

// peerLocation is where the data goes on the peer: what DST names, else what the source is called.
func peerLocation(h *pathsel.Host, src pathsel.Location, dst string) (pathsel.Location, error) {
	if dst != "" {
		id, err := h.Resolve(dst)
		if err != nil {
			return "", err
		}
		return explain.LocationOf(h, id)
	}
	switch all := h.Locations(); {
	case len(all) == 0:
		return "", errors.New("it has no GPU and no NUMA node")
	case !slices.Contains(all, src):
		return "", fmt.Errorf("it has no %s", src)
	}
	return src, nil
}
