package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/explain"
	"github.com/topoctl/topoctl/internal/explain/show"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/rival"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/export"
)

// Codes of the hints that the command adds to explain's.
const (
	hintTCP  pathsel.Code = "tcp-fallback" // RDMA devices are there, none can be used
	hintCUDA pathsel.Code = "cuda-order"   // what the numbering of GPUs rests on
)

// answer finds what was asked for.
func (o *pathOptions) answer(ctx context.Context, h *pathsel.Host) (*show.Document, error) {
	d := show.New(h)
	d.Request.Down = o.downIDs
	src, err := o.resolve(h, d, o.src)
	if err != nil {
		return nil, err
	}
	if o.transport == pathsel.Auto && h.Transport() == pathsel.TCP && len(h.Topology().RDMADevices) > 0 {
		d.Hint(hintTCP, "", "no RDMA device of this host can be used, so the ports are ranked for TCP")
	}
	if o.dst != "" && o.peer == "" {
		dst, err := o.resolve(h, d, o.dst)
		if err != nil {
			return nil, err
		}
		a, err := explain.Between(h, src, dst)
		if err != nil {
			return nil, err
		}
		d.Take(a)
		return d, nil
	}
	location, err := explain.LocationOf(h, src)
	if err != nil {
		if all := h.Locations(); o.peer == "" && len(all) > 0 && !strings.HasPrefix(string(src), "numa:") {
			return nil, withHint(err, "use %q to see the path between two devices", fmt.Sprintf("topoctl path %s %s", all[0], src.Name()))
		}
		return nil, err
	}
	a, err := explain.Memory(h, location)
	if err != nil {
		return nil, err
	}
	d.Take(a)
	if o.most > 0 && len(d.Ranked) > o.most {
		d.Ranked, d.More = d.Ranked[:o.most], len(d.Ranked)-o.most
	}
	if o.peer != "" {
		return d, o.lanes(ctx, h, d, location)
	}
	for _, e := range o.engines {
		c, err := rival.Choose(h, e, location)
		if err != nil {
			return nil, err
		}
		d.Engines = append(d.Engines, c)
	}
	return d, nil
}

// resolve finds a node of this host. What cuda:N is only --visible tells.
func (o *pathOptions) resolve(h *pathsel.Host, d *show.Document, ref string) (topo.ID, error) {
	number, isCUDA := strings.CutPrefix(ref, "cuda:")
	if !isCUDA {
		return h.Resolve(ref)
	}
	if o.visible == "" {
		id, err := h.Resolve(ref)
		if err != nil {
			return "", withHint(err, "use --visible LIST to give the GPUs that the process sees, as in CUDA_VISIBLE_DEVICES")
		}
		return id, nil
	}
	v, err := export.AllGPUs(h.Topology()).Select(o.visible)
	if err != nil {
		return "", fmt.Errorf("--visible: %w", pkgerr.Plain(err))
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || n >= len(v.GPUs) {
		return "", fmt.Errorf("%s: --visible %s has %s, numbered from 0", ref, o.visible, text.Plural(len(v.GPUs), "GPU"))
	}
	for _, note := range v.Notes {
		d.Hint(hintCUDA, "", "%s", note)
	}
	return v.GPUs[n].Location.Node(), nil
}
