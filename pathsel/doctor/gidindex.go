package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

var gidIndexCheck = Check{
	Code: "gid-index-wrong", Family: "RoCE and InfiniBand settings", Severity: Error,
	Title: "the GID index that programs are told to use is a good one on every RoCE data port",
	Judged: "Each GID index that is set, on each RoCE data port that is up. An index without a GID is an error: connections from there fail. " +
		"One of RoCE v1, of a link-local address, or of an address that the interface does not have, is a warning. " +
		"Looked at are NCCL_IB_GID_INDEX, NVSHMEM_IB_GID_INDEX, UCX_IB_GID_INDEX and MC_GID_INDEX, and the index of --gid-index; -1 and auto choose nothing. " +
		"It does not apply where none is set. sudo takes the environment away: run doctor as the programs are run.",
	Facts: "the environment of the process that looked (/proc/self/environ), /etc/nccl.conf, /etc/ucx/ucx.conf; gids, gid_attrs/types and gid_attrs/ndevs in /sys/class/infiniband/DEV/ports/N; addresses by netlink",
	Fix:   "Unset it, so that programs choose by themselves, or set the index that the finding names. A GID that is gone comes back with the address of its interface: ip addr add.",
	run:   checkWrongIndex,
}

// chosenIndex is a GID index that programs are told to use.
type chosenIndex struct {
	name, value string
	where       string // the file, "" for our own option
	index       int
}

// says is the setting as one writes it.
func (c *chosenIndex) says() string {
	if c.where == "" {
		return c.name + " " + c.value
	}
	return c.name + "=" + c.value
}

// seen is where the setting was read.
func (c *chosenIndex) seen() string {
	if c.where == "" {
		return c.says()
	}
	return saying(c.where, c.says())
}

// undo says how to be rid of it.
func (c *chosenIndex) undo() string {
	switch {
	case c.where == "":
		return "leave it out"
	case strings.HasPrefix(c.where, "/proc/"):
		return "unset " + c.name
	}
	return "take " + c.name + " out of " + c.where
}

// chosenIndices are the GID indices that are set, those of the environment
// before those of files; told is false where the environment is not known.
func (h *host) chosenIndices(o *outcome) (list []chosenIndex, told bool) {
	if h.gidIndex != nil {
		list = append(list, chosenIndex{name: "--gid-index", value: strconv.Itoa(*h.gidIndex), index: *h.gidIndex})
	}
	s := h.t.Host.Software
	if s == nil || s.Environment == nil {
		return list, false
	}
	seen := map[string]bool{}
	for _, x := range slices.Backward(s.Environment.Settings) { // the environment is last and wins
		if seen[x.Name] {
			continue
		}
		seen[x.Name] = true
		c := chosenIndex{name: x.Name, value: x.Value, where: x.Where}
		var err error
		switch c.index, err = strconv.Atoi(x.Value); {
		case x.Value == "" || x.Value == "auto" || err == nil && c.index < 0:
		case err != nil:
			o.find(Finding{Severity: Warning, Evidence: []string{saying(x.Where, c.says())},
				Text: fmt.Sprintf("%s is no GID index: a program takes it for 0 or refuses to start", c.says()), Fix: c.undo() + ", or set a number"})
		default:
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b chosenIndex) int { return strings.Compare(a.name, b.name) })
	return list, true
}

func checkWrongIndex(h *host) outcome {
	var o outcome
	all, layers := h.roce()
	ports := onlyData(all)
	if len(ports)+len(layers) == 0 {
		return notApplicable("no RoCE data port is up")
	}
	chosen, told := h.chosenIndices(&o)
	if !told {
		o.lack("whether programs are told a GID index is not known: their environment is not", h.onHost())
	}
	if len(chosen) == 0 {
		if told && len(o.findings) == 0 {
			return notApplicable("no GID index is set: programs choose by themselves")
		}
		return o
	}
	var untold, unread []topo.ID
	for i := range chosen {
		for _, p := range ports {
			f, known := h.wrongIndex(&chosen[i], p)
			switch {
			case known && f != nil:
				o.find(*f)
			case known || slices.Contains(untold, p.ID) || slices.Contains(unread, p.ID):
			case h.unreadEntry(p, chosen[i].index):
				unread = append(unread, p.ID)
			default:
				untold = append(untold, p.ID)
			}
		}
	}
	o.lackLayers(h, layers)
	if len(untold) > 0 {
		o.lack("the GIDs or their types are not told", h.lookAgain(), untold...)
	}
	if len(unread) > 0 {
		o.lack("the GID table was not read that far: discovery stops after 16 unused entries", "read the entry below /sys/class/infiniband/DEVICE/ports/N/gids on the host", unread...)
	}
	var names []string
	for i := range chosen {
		names = append(names, chosen[i].says())
	}
	o.note = some(names) + " on " + count(len(ports), "port")
	return o
}

// unreadEntry says whether a port's table was read, and not up to this entry.
func (h *host) unreadEntry(p *pathsel.Port, index int) bool {
	x := h.port[p.ID]
	return x != nil && x.GIDTable != nil && x.GIDsRead != nil && index >= *x.GIDsRead
}

// wrongIndex judges a GID index on one port; known is false where its table is
// not told.
func (h *host) wrongIndex(c *chosenIndex, p *pathsel.Port) (f *Finding, known bool) {
	x := h.port[p.ID]
	if x == nil || x.GIDTable == nil {
		return nil, false
	}
	if len(x.GIDs) == 0 && !h.unreadGIDs(p) {
		return nil, true // gid-missing tells
	}
	entry := "gids/" + strconv.Itoa(c.index)
	f = &Finding{Severity: Error, Subjects: []topo.ID{p.ID}, Evidence: []string{c.seen()}, Fix: c.undo() + h.goodIndex(p)}
	i := slices.IndexFunc(x.GIDs, func(g topo.GID) bool { return g.Index == c.index })
	switch {
	case c.index >= *x.GIDTable:
		f.Text = fmt.Sprintf("%s: the port's GID table has %d entries, so there is none of that index: connections from here fail", c.says(), *x.GIDTable)
		f.Evidence = places(append(f.Evidence, h.portFile(p, "gids", ""))...)
		return f, true
	case i < 0 && (h.unreadGIDs(p) || x.GIDsRead != nil && c.index >= *x.GIDsRead):
		return nil, false
	case i < 0:
		f.Text = c.says() + ": the port has no GID of that index, its address is gone or was never there: connections from here fail"
		f.Evidence = places(append(f.Evidence, h.portFile(p, entry, "0000:0000:0000:0000:0000:0000:0000:0000"))...)
		return f, true
	}
	g := x.GIDs[i]
	a, err := netip.ParseAddr(g.GID)
	f.Severity = Warning
	f.Evidence = places(append(f.Evidence, h.portFile(p, entry, g.GID))...)
	switch {
	case g.Type == "" || err != nil:
		return nil, false
	case !strings.Contains(g.Type, "v2"):
		f.Text = c.says() + ": that GID is of RoCE v1, whose packets no router forwards, and which peers with RoCE v2 do not understand"
		f.Evidence = places(append(f.Evidence, h.portFile(p, "gid_attrs/types/"+strconv.Itoa(c.index), g.Type))...)
	case a.Unmap().IsLinkLocalUnicast():
		f.Text = c.says() + ": that GID is a link-local address: peers on other networks cannot be reached"
	case h.strange(p, &g, a):
		f.Text = fmt.Sprintf("%s: that GID is of %s, which interface %s does not have: no answer finds its way back", c.says(), a.Unmap(), h.gidNetdev(p, &g))
	default:
		return nil, true
	}
	return f, true
}

// goodIndex is the index that would do on a port, as the end of an advice.
func (h *host) goodIndex(p *pathsel.Port) string {
	list := pathsel.RoCEGIDs(h.port[p.ID])
	if len(list) == 0 {
		return "; no GID of this port would do: see gid-none-routable"
	}
	a, _ := netip.ParseAddr(list[0].GID)
	return fmt.Sprintf(", or set %d (RoCE v2, %s)", list[0].Index, a.Unmap())
}

// gidNetdev is the interface that a GID is of.
func (h *host) gidNetdev(p *pathsel.Port, g *topo.GID) string {
	if g.Netdev != "" {
		return g.Netdev
	}
	return p.Netdev
}

// strange says whether a GID is of an address that its interface does not have.
func (h *host) strange(p *pathsel.Port, g *topo.GID, a netip.Addr) bool {
	n := h.netdev[h.gidNetdev(p, g)]
	if n == nil || !h.addressesTold() {
		return false
	}
	return !slices.ContainsFunc(n.Addresses, func(s string) bool {
		have, err := netip.ParsePrefix(s)
		return err == nil && have.Addr() == a.Unmap()
	})
}
