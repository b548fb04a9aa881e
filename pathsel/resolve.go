package pathsel

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
)

// maxRef bounds the length of a name: a UUID of a MIG device has 45 characters.
const maxRef = 128

// ErrNoNode is the error of Resolve for a name that matches no node of the host, or more than one.
var ErrNoNode = errors.New("no such node")

// resolveError is an ErrNoNode whose text says what was asked for and what the host has.
type resolveError struct{ text string }

func (e *resolveError) Error() string        { return e.text }
func (e *resolveError) Is(target error) bool { return target == ErrNoNode }

func noSuchNode(format string, args ...any) error { return &resolveError{fmt.Sprintf(format, args...)} }

// Resolve finds the node that a name means:
//
//	gpu:0, GPU0                   a GPU, counted in PCI order
//	nvml:0                        a GPU by the number of nvidia-smi
//	GPU-62a7..., MIG-9f3b...      a GPU by its UUID or a unique beginning of it
//	cpu:0, numa:0                 a NUMA node
//	mlx5_0, nic:mlx5_0            an RDMA device, or an interface that has none
//	mlx5_0/1, port:mlx5_0/1       a port of an RDMA device
//	eth0, net:eth0                an interface
//	nvme0, nvme:nvme0             a drive
//	0000:1b:00.0, 1b:00.0         what is at a PCI address
//
// cuda:N is refused on a host with several GPUs, because nothing here tells in
// which order CUDA counts them for a process.
func (h *Host) Resolve(ref string) (topo.ID, error) {
	if ref == "" {
		return "", noSuchNode("no name given: %s", h.locationsText())
	}
	if len(ref) > maxRef {
		return "", noSuchNode("%.32q...: %d characters long: want a name of at most %d", ref, len(ref), maxRef)
	}
	if bdf, err := topo.ParseBDF(ref); err == nil {
		return h.atAddress(ref, bdf)
	}
	lower := strings.ToLower(ref)
	if n, ok := strings.CutPrefix(lower, "gpu"); ok && isNumber(n) {
		return h.gpuAsPrinted(ref, n)
	}
	if strings.HasPrefix(lower, "gpu-") || strings.HasPrefix(lower, "mig-") {
		return h.gpuByUUID(ref, lower)
	}
	kind, name, _ := strings.Cut(ref, ":")
	if kind == ref { // no colon
		return h.lookup(ref)
	}
	switch kind = strings.ToLower(kind); kind {
	case "gpu", "cpu", "numa", "nvml", "cuda":
		number, err := strconv.Atoi(name)
		switch {
		case err != nil || !isNumber(name):
			return "", noSuchNode("%s:%s: want a number: %s", kind, name, h.locationsText())
		case kind == "nvml":
			return h.gpuByNVML(number)
		case kind == "cuda":
			return h.gpuByCUDA(number)
		}
		return h.lookup(fmt.Sprintf("%s:%d", kind, number))
	case "pci":
		bdf, err := topo.ParseBDF(name)
		if err != nil {
			return "", noSuchNode("%s: want a PCI address such as 0000:1b:00.0", ref)
		}
		return h.atAddress(name, bdf)
	case "nic", "rdma", "net", "port", "nvme":
		return h.lookup(kind + ":" + name)
	}
	return h.lookup(ref)
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// nodeName is one of the names of a node.
type nodeName struct {
	text string
	id   topo.ID
}

// names are those of all nodes that a name can mean, in the order of kinds.
func (h *Host) names() []nodeName {
	var out []nodeName
	add := func(id topo.ID, more ...string) {
		out = append(out, nodeName{string(id), id})
		for _, text := range more {
			out = append(out, nodeName{text, id})
		}
	}
	for i := range h.t.GPUs {
		add(h.t.GPUs[i].ID)
	}
	for i := range h.t.NUMANodes {
		add(h.t.NUMANodes[i].ID, "cpu:"+h.t.NUMANodes[i].ID.Name())
	}
	for i := range h.t.RDMADevices {
		add(h.t.RDMADevices[i].ID, h.t.RDMADevices[i].Name)
	}
	for i := range h.t.Ports { // UCX and NCCL write "mlx5_0:1"
		add(h.t.Ports[i].ID, h.t.Ports[i].ID.Name(), strings.Replace(h.t.Ports[i].ID.Name(), "/", ":", 1))
	}
	for i := range h.t.Netdevs {
		add(h.t.Netdevs[i].ID, h.t.Netdevs[i].Name)
	}
	for i := range h.t.NVMes {
		add(h.t.NVMes[i].ID, h.t.NVMes[i].Name)
	}
	for i := range h.ports {
		p := &h.ports[i]
		out = append(out, nodeName{"nic:" + p.NIC.Name(), p.NIC}, nodeName{string(p.Card), p.NIC})
	}
	return out
}

// lookup is the node of a name.
func (h *Host) lookup(ref string) (topo.ID, error) {
	var found []topo.ID
	for _, n := range h.names() {
		if n.text == ref && !slices.Contains(found, n.id) {
			found = append(found, n.id)
		}
	}
	switch len(found) {
	case 0:
		return "", h.noSuchName(ref)
	case 1:
		return found[0], nil
	}
	return "", ambiguous(ref, found)
}

// gpuAsPrinted resolves "GPU3". That is what nvidia-smi prints, too, so it is
// refused where nvidia-smi means another GPU.
func (h *Host) gpuAsPrinted(ref, number string) (topo.ID, error) {
	n, err := strconv.Atoi(number)
	if err != nil {
		return "", h.noSuchName(ref)
	}
	id, err := h.lookup(string(topo.GPUID(n)))
	if other, errNVML := h.gpuByNVML(n); err == nil && errNVML == nil && other != id {
		return "", noSuchNode("%s: nvidia-smi's number %d is %s here, which counts in PCI order: say gpu:%d or nvml:%d", ref, n, other, n, n)
	}
	return id, err
}

func (h *Host) gpuByNVML(number int) (topo.ID, error) {
	known := false
	for i := range h.t.GPUs {
		g := &h.t.GPUs[i]
		known = known || g.NVMLIndex != nil
		if g.NVMLIndex != nil && *g.NVMLIndex == number {
			return g.ID, nil
		}
	}
	if !known {
		return "", noSuchNode("nvml:%d: NVML's numbers are not known of this host: %s", number, h.locationsText())
	}
	return "", h.noSuchName(fmt.Sprintf("nvml:%d", number))
}

// gpuByCUDA resolves a CUDA number where every order of counting gives the
// same: one GPU.
func (h *Host) gpuByCUDA(number int) (topo.ID, error) {
	var seen []topo.ID
	for i := range h.t.GPUs {
		if g := &h.t.GPUs[i]; g.Visible == nil || *g.Visible {
			seen = append(seen, g.ID)
		}
	}
	switch {
	case len(seen) == 1 && number == 0:
		return seen[0], nil
	case len(seen) <= 1:
		return "", h.noSuchName(fmt.Sprintf("cuda:%d", number))
	}
	return "", noSuchNode("cuda:%d: which GPU that is depends on the process (CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER): say gpu:N, counted in PCI order, nvml:N or a UUID", number)
}

// gpuByUUID finds the GPU of a UUID, or of a MIG device's.
func (h *Host) gpuByUUID(ref, lower string) (topo.ID, error) {
	// Older drivers name MIG devices after their GPU: MIG-GPU-<uuid>/1/0.
	if uuid, ok := strings.CutPrefix(lower, "mig-gpu-"); ok {
		uuid, _, _ = strings.Cut(uuid, "/")
		lower = "gpu-" + uuid
	}
	var found []topo.ID
	for i := range h.t.GPUs {
		g := &h.t.GPUs[i]
		match := strings.HasPrefix(strings.ToLower(g.UUID), lower)
		if g.MIG != nil {
			match = match || slices.ContainsFunc(g.MIG.Instances, func(m topo.MIGInstance) bool {
				return strings.HasPrefix(strings.ToLower(m.UUID), lower)
			})
		}
		if match {
			found = append(found, g.ID)
		}
	}
	if len(found) > 1 {
		return "", ambiguous(ref, found)
	}
	if len(found) == 0 {
		return "", noSuchNode("%s: no GPU of this host has a UUID with that beginning: %s", ref, h.locationsText())
	}
	return found[0], nil
}

func ambiguous(ref string, found []topo.ID) error {
	names := make([]string, len(found))
	for i, id := range found {
		names[i] = string(id)
	}
	return noSuchNode("%s is ambiguous: it can mean %s", ref, text.Join(names, len(names)))
}

// atAddress finds what is at a PCI address: a GPU, an RDMA device, else an
// interface, or a drive. An address without domain means domain 0, or the only
// domain that has such a function.
func (h *Host) atAddress(ref string, bdf topo.BDF) (topo.ID, error) {
	pci := topo.PCIID(bdf)
	if h.index.PCIDevice(pci) == nil && strings.Count(ref, ":") == 1 {
		var others []topo.ID
		for i := range h.t.PCIDevices {
			if d := &h.t.PCIDevices[i]; d.BDF.Bus == bdf.Bus && d.BDF.Device == bdf.Device && d.BDF.Func == bdf.Func {
				others = append(others, d.ID)
			}
		}
		switch {
		case len(others) == 1:
			pci = others[0]
		case len(others) > 1:
			return "", ambiguous(ref, others)
		}
	}
	found := h.devicesAt(pci)
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", ambiguous(ref, found)
	}
	d := h.index.PCIDevice(pci)
	if d == nil {
		return "", noSuchNode("%s: nothing is at this PCI address", ref)
	}
	what := string(d.Role)
	if d.DeviceName != "" {
		what += ", " + d.DeviceName
	}
	return "", noSuchNode("%s is no GPU, NIC or drive (%s)", ref, what)
}

// devicesAt lists the devices of a PCI function. An RDMA device stands for the
// interfaces beside it.
func (h *Host) devicesAt(pci topo.ID) []topo.ID {
	var found []topo.ID
	at := h.index.On(pci)
	for _, g := range at.GPUs {
		found = append(found, g.ID)
	}
	for _, r := range at.RDMADevices {
		found = append(found, r.ID)
	}
	if len(found) == 0 {
		for _, n := range at.Netdevs {
			found = append(found, n.ID)
		}
	}
	for _, n := range at.NVMes {
		found = append(found, n.ID)
	}
	return found
}

// noSuchName is the error for an unknown name. It suggests names that look like it.
func (h *Host) noSuchName(ref string) error {
	const most = 5
	var near []string
	var ids []topo.ID
	names := h.names()
	if kind, _, _ := strings.Cut(ref, ":"); kind == "gpu" || kind == "cpu" || kind == "numa" || kind == "nvml" {
		names = nil // numbers are near each other, whatever is meant
	}
	for _, n := range names {
		if !isNumber(n.text) && text.Distance(n.text, ref) <= 1+len(ref)/5 && len(near) < most && !slices.Contains(ids, n.id) {
			near, ids = append(near, n.text), append(ids, n.id)
		}
	}
	if len(near) == 0 {
		return noSuchNode("%s: no such name: %s", ref, h.locationsText())
	}
	return noSuchNode("%s: no such name; similar ones: %s", ref, text.Join(near, len(near)))
}

// locationsText says which memory locations the host has.
func (h *Host) locationsText() string {
	var parts []string
	run := func(locations []Location) {
		switch n := len(locations); {
		case n == 1:
			parts = append(parts, string(locations[0]))
		case n > 1:
			parts = append(parts, fmt.Sprintf("%s to %s", locations[0], locations[n-1]))
		}
	}
	run(h.locations[:len(h.t.GPUs)])
	run(h.locations[len(h.t.GPUs):])
	if len(parts) == 0 {
		return "this host has no GPU and no NUMA node"
	}
	return "this host has " + text.Join(parts, len(parts))
}
