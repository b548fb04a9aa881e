package export

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/text"
)

// drivers whose devices claims are made of: NVIDIA's for GPUs, dranet for NICs.
const (
	gpuClass, gpuDriver = "gpu.nvidia.com", "gpu.nvidia.com"
	nicClass, nicDriver = "dranet", "dra.net"
)

// DeviceAttributes writes what the webhook for dranet answers (topoctl agent --dranet), for each host and network device by
// PCI address, as JSON.
func DeviceAttributes(f *fleet.Fleet, lists bool) (Output, error) {
	out := map[string]map[string]Attributes{}
	var o Output
	for i := range f.Hosts {
		h := &f.Hosts[i]
		if !h.Known() {
			continue
		}
		out[h.Host] = map[string]Attributes{}
		for k := range h.Ports {
			if p := &h.Ports[k]; p.PCI != "" {
				out[h.Host][p.PCI] = AttributesOf(f, h, p, lists)
			}
		}
	}
	data, err := json.MarshalIndent(out, "", " ")
	data = append(data, '\n')
	o.Data = data
	return o, err
}

// Claims writes ResourceClaimTemplates for each class of hosts: GPUs, as many as a claim takes, with the NICs that the
// plan of "topoctl path --plan" gives them. gpus 0 is all of a host's.
func Claims(f *fleet.Fleet, gpus int) Output {
	var notes []string
	type template struct {
		class *fleet.Class
		first int
		gpus  []string
		nics  []string
	}
	var list []template
	for i := range f.Classes {
		c := &f.Classes[i]
		same, left := claimHosts(f, c)
		notes = append(notes, left...)
		if same == nil {
			continue
		}
		n := gpus
		if n == 0 {
			n = len(same.gpus)
		}
		if n > len(same.gpus) {
			notes = append(notes, fmt.Sprintf("%s: %s, not %d", c.Class, text.Plural(len(same.gpus), "GPU"), n))
			continue
		}
		if same.blind && n < len(same.gpus) {
			notes = append(notes, c.Class+": which NIC is near which GPU is not known there, so a claim's NICs are not near its GPUs but the next in order")
		}
		for first := 0; first+n <= len(same.gpus); first += n {
			x := template{class: c, first: first, gpus: same.gpus[first : first+n]}
			for _, nics := range same.nics[first : first+n] {
				for _, nic := range nics {
					if !slices.Contains(x.nics, nic) {
						x.nics = append(x.nics, nic)
					}
				}
			}
			list = append(list, x)
		}
	}
	notes = append(notes, fmt.Sprintf("device classes: GPUs are asked for by %q, NICs by %q, which has to exist and to select dranet's devices", gpuClass, nicClass),
		"a claim takes these devices of one node and no others: two pods on a node need two templates")
	out := head("ResourceClaimTemplates", notes)
	w := objects()
	for _, x := range list {
		what := fmt.Sprintf("%s of a host with %s", text.Plural(len(x.gpus), "GPU"), strings.TrimSpace(x.class.GPUModel))
		name := w.name(fmt.Sprintf("topoctl-%s-gpus-%d-%d", x.class.Class, x.first, x.first+len(x.gpus)-1))
		fmt.Fprintf(out, "---\n# %s: %s\napiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata:\n  name: %s\nspec:\n  spec:\n    devices:\n      requests:\n",
			comment(x.class.Class), comment(what), yaml(name))
		request(out.WriteString, "gpus", gpuClass, gpuDriver, "resource.kubernetes.io", "pciBusID", x.gpus)
		if len(x.nics) > 0 {
			request(out.WriteString, "nics", nicClass, nicDriver, "dra.net", "pciAddress", x.nics)
		}
	}
	return Output{out.Bytes(), notes}
}

// request writes one request of a claim: as many devices as there are addresses, each at one of them. Devices
// without an address are passed over, where asking for it would be an error.
func request(write func(string) (int, error), name, class, driver, domain, attribute string, addresses []string) {
	quoted := make([]string, len(addresses))
	for i, a := range addresses {
		quoted[i] = fmt.Sprintf("%q", a)
	}
	cel := fmt.Sprintf("device.driver == %q && %q in device.attributes[%q] && device.attributes[%q].%s in [%s]", driver, attribute, domain, domain, attribute, strings.Join(quoted, ", "))
	_, _ = write(fmt.Sprintf("      - name: %s\n        exactly:\n          deviceClassName: %s\n          allocationMode: ExactCount\n          count: %d\n          selectors:\n          - cel:\n              expression: %s\n",
		name, yaml(class), len(addresses), yaml(cel))) // a buffer takes everything
}

// claimable is what a host has for claims.
type claimable struct {
	host  string
	gpus  []string   // addresses
	nics  [][]string // of each GPU
	blind bool       // which are near is not known
}

// claimHosts returns a host that stands for most hosts of a class. notes name the hosts with devices at other addresses.
func claimHosts(f *fleet.Fleet, c *fleet.Class) (most *claimable, notes []string) {
	var found []*claimable
	for i := range f.Hosts {
		h := &f.Hosts[i]
		if !slices.Contains(c.Hosts, h.Host) {
			continue
		}
		x := &claimable{host: h.Host, blind: !slices.ContainsFunc(h.Ports, func(p fleet.Port) bool { return p.Class != "" })}
		for k := range h.GPUs {
			x.gpus, x.nics = append(x.gpus, h.GPUs[k].PCI), append(x.nics, planned(h, &h.GPUs[k]))
		}
		if len(x.gpus) == 0 || slices.Contains(x.gpus, "") {
			notes = append(notes, h.Host+": no GPUs with known PCI addresses")
			continue
		}
		found = append(found, x)
	}
	for i, same := range largestFirst(found, func(x *claimable) string { return fmt.Sprint(x.gpus, x.nics, x.blind) }) {
		if i == 0 {
			most = same[0]
			continue
		}
		var hosts []string
		for _, x := range same {
			hosts = append(hosts, x.host)
		}
		notes = append(notes, fmt.Sprintf("%s: devices at other PCI addresses, or another plan, than most of %s: the templates do not fit", text.List(hosts, 8), c.Class))
	}
	return most, notes
}

// planned are the PCI addresses of the ports that the plan for all GPUs gives a GPU.
func planned(h *fleet.Host, g *fleet.GPU) (out []string) {
	for _, place := range g.Plan {
		for i := range h.Ports {
			if p := &h.Ports[i]; p.PCI != "" && cmp.Or(p.Place, p.Port) == place {
				out = append(out, p.PCI)
			}
		}
	}
	return out
}
