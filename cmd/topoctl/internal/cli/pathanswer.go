package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/export"
	"github.com/topoctl/topoctl/pathsel/rival"
)

// Codes of the hints.
const (
	hintDegraded pathsel.Code = "link-degraded"  // a link on the way runs below what it could
	hintNearer   pathsel.Code = "nearer-port"    // a nearer port than the chosen one cannot be used
	hintTCP      pathsel.Code = "tcp-fallback"   // RDMA devices are there, none can be used
	hintFaster   pathsel.Code = "faster-port"    // a farther port carries much more
	hintNoAccess pathsel.Code = "no-peer-access" // peer access between two GPUs is refused
	hintCUDA     pathsel.Code = "cuda-order"     // what the numbering of GPUs rests on
	hintRole     pathsel.Code = "not-for-data"   // the chosen port is there for something else
	codeBond     pathsel.Code = "bond"           // pathsel's note on a port of several legs
)

// answer finds what was asked for.
func (o *pathOptions) answer(ctx context.Context, h *pathsel.Host, rates topo.Overlay) (*pathDoc, error) {
	t := h.Topology()
	d := &pathDoc{Schema: schemaPath, Tool: topo.Tool{Name: "topoctl", Version: buildInfo().Version}, Host: t.Host.Name,
		Request: pathRequest{Transport: h.Transport()}, Ranked: []pathsel.Candidate{}, Rejected: []pathsel.Candidate{},
		Capacity: []pathCapacity{}, Engines: []*rival.Choice{}, Hints: []pathsel.Reason{}, h: h, rates: rates}
	src, err := o.resolve(d, o.src)
	if err != nil {
		return nil, err
	}
	d.Request.Source = src
	if o.transport == pathsel.Auto && h.Transport() == pathsel.TCP && len(t.RDMADevices) > 0 {
		d.hint(hintTCP, "", "no RDMA device of this host can be used, so the ports are ranked for TCP")
	}
	if o.dst != "" && o.peer == "" {
		dst, err := o.resolve(d, o.dst)
		if err != nil {
			return nil, err
		}
		return d, d.between(h, src, dst)
	}
	location, err := locationOf(h, src)
	if err != nil {
		if all := h.Locations(); o.peer == "" && len(all) > 0 && !strings.HasPrefix(string(src), "numa:") {
			return nil, withHint(err, "%q explains the way between two devices", fmt.Sprintf("topoctl path %s %s", all[0], src.Name()))
		}
		return nil, err
	}
	if err := d.memory(h, location, o.most); err != nil {
		return nil, err
	}
	if o.peer != "" {
		return d, o.lanes(ctx, d, location)
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
func (o *pathOptions) resolve(d *pathDoc, ref string) (topo.ID, error) {
	number, isCUDA := strings.CutPrefix(ref, "cuda:")
	if !isCUDA {
		return d.h.Resolve(ref)
	}
	if o.visible == "" {
		id, err := d.h.Resolve(ref)
		if err != nil {
			return "", withHint(err, "--visible LIST tells which GPUs the process sees, as in CUDA_VISIBLE_DEVICES")
		}
		return id, nil
	}
	v, err := export.AllGPUs(d.h.Topology()).Select(o.visible)
	if err != nil {
		return "", fmt.Errorf("--visible: %w", trimmedError{err})
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || n >= len(v.GPUs) {
		return "", fmt.Errorf("%s: --visible %s has %s, numbered from 0", ref, o.visible, plural(len(v.GPUs), "GPU"))
	}
	for _, note := range v.Notes {
		d.hint(hintCUDA, "", "%s", note)
	}
	return v.GPUs[n].Location.Node(), nil
}

// locationOf is the memory location of a node.
func locationOf(h *pathsel.Host, node topo.ID) (pathsel.Location, error) {
	l := pathsel.LocationOf(node)
	if slices.Contains(h.Locations(), l) {
		return l, nil
	}
	if strings.HasPrefix(string(node), "numa:") {
		return "", fmt.Errorf("%s is memory without CPUs of its own: name the GPU or NUMA node that it belongs to", l)
	}
	return "", fmt.Errorf("%s is no memory location: want gpu:N or cpu:N", node.Name())
}

func (d *pathDoc) hint(code pathsel.Code, evidence, format string, args ...any) {
	d.Hints = append(d.Hints, pathsel.Reason{Code: code, Text: fmt.Sprintf(format, args...), Evidence: evidence})
}

// memory says which ports a location uses.
func (d *pathDoc) memory(h *pathsel.Host, location pathsel.Location, most int) error {
	a, err := h.Affinity(location, nil)
	if err != nil {
		return err
	}
	d.Ranked, d.Rejected = a.Ranked, a.Rejected
	if len(a.Ranked) == 0 {
		d.bad = true
		d.why = fmt.Sprintf("%s has no usable port", location)
		return nil
	}
	d.Chosen = &a.Ranked[0]
	d.Route = routeToPort(h, d.rates, location, d.Chosen)
	usable := append(a.Preferred(), a.Available()...)
	for _, set := range []struct {
		name  string
		ports []topo.ID
	}{{"preferred", a.Preferred()}, {"usable", usable}} {
		c, err := h.Capacity(location, set.ports)
		if err != nil {
			return err
		}
		d.Capacity = append(d.Capacity, pathCapacity{set.name, c})
	}
	if most > 0 && len(d.Ranked) > most {
		d.Ranked, d.more = d.Ranked[:most], len(d.Ranked)-most
	}
	d.notForData()
	d.doubts()
	d.degraded()
	d.faster(a.Ranked)
	d.nearer(a.Rejected)
	return nil
}

// nearer points to ports that are nearer than the chosen one and out of order.
func (d *pathDoc) nearer(rejected []pathsel.Candidate) {
	var nearer []pathsel.Candidate
	for i := range rejected {
		c := &rejected[i]
		if c.Class.Known() && c.Class.Compare(d.Chosen.Class) < 0 && broken(c.Reason.Code) {
			nearer = append(nearer, *c)
		}
	}
	for _, group := range groups(nearer) {
		names := make([]string, len(group))
		for i, c := range group {
			names[i] = c.Name
		}
		d.hint(hintNearer, group[0].Reason.Evidence, "nearer (%s) but not usable: %s: %s", group[0].Class, several(names, 4), groupReason(group))
	}
}

// muchFaster is how much more a farther port must carry to be worth a hint.
const muchFaster = 2

// faster points to a farther port that carries much more than the chosen one:
// nearness ranks before rate.
func (d *pathDoc) faster(ranked []pathsel.Candidate) {
	if d.Chosen.BytesPerSec == nil {
		return
	}
	for i := range ranked {
		c := &ranked[i]
		if c.BytesPerSec == nil || *c.BytesPerSec < muchFaster**d.Chosen.BytesPerSec {
			continue
		}
		rate := units.Rate(int64(*c.BytesPerSec), units.Gbyte)
		if c.Basis == topo.BasisAssumed {
			rate = "up to " + rate
		}
		where := "farther (" + c.Class.String() + ")"
		if !c.Class.Known() {
			where = "at a place that is not known"
		}
		d.hint(hintFaster, "", "%s is %s and could carry %s: nearness ranks before rate", c.Name, where, rate)
		return
	}
}

// broken says whether a port is rejected for a state that can be mended.
func broken(code pathsel.Code) bool {
	switch code {
	case pathsel.CodePortDown, pathsel.CodeNoAccess, pathsel.CodeNoGID, pathsel.CodeNoLID, pathsel.CodeNoAddress:
		return true
	}
	return false
}

// notForData says that the chosen port is there for something else: what the
// user says with --role counts only while there is a better one.
func (d *pathDoc) notForData() {
	p, ok := d.h.Port(d.Chosen.Port)
	if !ok || p.Role == pathsel.RoleData || p.Role == pathsel.RoleUnknown {
		return
	}
	why := p.RoleReason.Text
	if p.RoleReason.Code == pathsel.CodeOverride {
		why = "set by you"
	}
	d.hint(hintRole, p.RoleReason.Evidence, "%s is a %s port (%s): used because no data port is usable", p.Name, p.Role, why)
}

// doubts are what is uncertain or worth knowing of the chosen port.
func (d *pathDoc) doubts() {
	for _, n := range d.Chosen.Notes {
		switch n.Code {
		case pathsel.CodeStateUnknown, pathsel.CodeLinkLocal, codeBond:
			d.hint(n.Code, n.Evidence, "%s: %s", d.Chosen.Name, n.Text)
		}
	}
}

// degraded gives a hint for each link of the route that runs below what it could.
func (d *pathDoc) degraded() {
	for i := range d.Route.Steps {
		s := &d.Route.Steps[i]
		if s.Degraded {
			d.hint(hintDegraded, s.Evidence, `%s carries %s of %s: run "topoctl doctor"`, linkText(d.h, s.Link),
				units.Rate(int64(*s.BytesPerSec), units.Gbyte), units.Rate(int64(s.Max.BytesPerSec), units.Gbyte))
		}
	}
}

// between explains the way between two nodes of one host.
func (d *pathDoc) between(h *pathsel.Host, src, dst topo.ID) error {
	d.Request.Destination = dst
	d.Route = routeBetween(h, d.rates, src, dst)
	if !d.Route.known {
		d.bad = true
		d.why = fmt.Sprintf("no way between %s and %s is known", shortName(src), shortName(dst))
		if err := errors.Join(notOnTree(h, src), notOnTree(h, dst)); err != nil {
			d.why += ": " + strings.ReplaceAll(err.Error(), "\n", "; ")
		}
		return nil
	}
	d.degraded()
	if p := d.Route.PeerAccess; p != "" && p != "ok" {
		d.hint(hintNoAccess, "", "the driver refuses peer access between the two: %s", p)
	}
	for _, pair := range [][2]topo.ID{{src, dst}, {dst, src}} {
		location := pathsel.LocationOf(pair[0])
		if !slices.Contains(h.Locations(), location) {
			continue
		}
		a, err := h.Affinity(location, nil)
		if err != nil {
			return err
		}
		of := func(c pathsel.Candidate) bool { return c.NIC == pair[1] || c.Port == pair[1] }
		if slices.ContainsFunc(a.Ranked, of) || slices.ContainsFunc(a.Rejected, of) {
			d.Ranked, d.Rejected = a.Ranked, a.Rejected
			if len(a.Ranked) > 0 {
				d.Chosen = &a.Ranked[0]
			}
			return nil
		}
	}
	return nil
}

// notOnTree says that a device has no known place.
func notOnTree(h *pathsel.Host, node topo.ID) error {
	t := h.Topology()
	for i := range t.RDMADevices {
		if r := &t.RDMADevices[i]; r.ID == node && r.PCI == "" {
			return fmt.Errorf("%s has no PCI device", r.Name)
		}
	}
	for i := range t.Netdevs {
		if n := &t.Netdevs[i]; n.ID == node && n.PCI == "" {
			return fmt.Errorf("%s has no PCI device", n.Name)
		}
	}
	return nil
}
