package fleet

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

// Codes of findings about identities.
const (
	CodeGUIDDuplicate    Code = "guid-duplicate"    // two ports have one GUID
	CodeMACDuplicate     Code = "mac-duplicate"     // two ports have one MAC address
	CodeMachineDuplicate Code = "machine-duplicate" // two hosts have one machine-id
	CodeDomainIncomplete Code = "domain-incomplete" // an NVLink domain lacks hosts that its sisters have
	CodeNameDefault      Code = "name-default"      // NodeDescription says nothing about the host
)

// owner is a port that has an identity.
type owner struct {
	host *Host
	port *Port
}

// checkIdentities finds what should be unique and is not.
func (f *Fleet) checkIdentities() {
	if anonymous := hostNames(slices.DeleteFunc(f.known(), func(h *Host) bool { return !h.Anonymous })); len(anonymous) > 0 {
		for _, code := range []Code{CodeGUIDDuplicate, CodeMACDuplicate, CodeMachineDuplicate} {
			f.unknown(code, fmt.Sprintf("%s: identities are stand-ins", text.Join(anonymous, mostNames)), "collect the hosts themselves: redacted captures and fixtures have no identities", anonymous)
		}
	}
	f.duplicates(CodeGUIDDuplicate, "GUID", "set GUIDs of virtual functions by hand or by the subnet manager; two cards with one GUID need other firmware settings", func(p *Port) string { return cmp.Or(p.GUID, p.NodeGUID) })
	f.duplicates(CodeMACDuplicate, "MAC address", "give each interface an address of its own", func(p *Port) string { return p.MAC })
	named := slices.DeleteFunc(f.known(), func(h *Host) bool { return h.MachineID == "" || h.Anonymous })
	for _, hosts := range group.By(named, func(h *Host) string { return h.MachineID }) {
		if len(hosts) > 1 {
			names := hostNames(hosts)
			f.find(Finding{Code: CodeMachineDuplicate, Severity: doctor.Warning, Hosts: names,
				Text:     fmt.Sprintf("%s have one machine-id: one host under several names, or copies of one image", text.Join(names, mostNames)),
				Evidence: []string{"/etc/machine-id, SHA-256 " + hosts[0].MachineID}, Fix: "systemd-machine-id-setup on the copies, or leave out what was collected twice"})
		}
	}
}

// duplicates tells of ports with one identity, those of the same hosts together.
func (f *Fleet) duplicates(code Code, what, fix string, id func(*Port) string) {
	by := map[string][]owner{}
	for h, p := range f.Ports() {
		if !h.Anonymous && p.Place != "" && strings.Trim(id(p), "0:x") != "" {
			by[id(p)] = append(by[id(p)], owner{h, p})
		}
	}
	names := func(owners []owner) []string {
		var out []string
		for _, o := range owners {
			out = append(out, o.host.Host)
		}
		return slices.Compact(out)
	}
	var twice [][]owner
	for _, owners := range by {
		if len(names(owners)) > 1 { // legs of a bond have one address, and so have ports of one device
			twice = append(twice, owners)
		}
	}
	slices.SortFunc(twice, func(a, b []owner) int {
		return cmp.Or(topo.NaturalCompare(a[0].host.Host, b[0].host.Host), topo.NaturalCompare(a[0].port.Port, b[0].port.Port))
	})
	for _, same := range group.By(twice, func(owners []owner) string { return strings.Join(names(owners), "\x00") }) {
		hosts := names(same[0])
		finding := Finding{Code: code, Severity: doctor.Error, Hosts: hosts, Fix: fix}
		for _, owners := range same {
			var ports []string
			for _, o := range owners {
				ports = append(ports, o.host.Host+"/"+o.port.ShortName())
			}
			finding.Subjects = append(finding.Subjects, ports...)
			finding.Evidence = append(finding.Evidence, fmt.Sprintf("%s %s: %s", what, id(owners[0].port), text.Join(ports, mostNames)))
		}
		finding.Text = fmt.Sprintf("%s have one %s", text.Join(finding.Subjects, mostNames), what)
		if len(same) > 1 {
			finding.Text = fmt.Sprintf("%s have the same %s on %s: perhaps one host under several names", text.Join(hosts, mostNames), text.Noun(len(same), what), text.Plural(len(same), "port"))
			finding.Fix = "leave out what was collected twice; else " + fix
		}
		f.find(finding)
	}
}

func hostNames(hosts []*Host) []string {
	var out []string
	for _, h := range hosts {
		out = append(out, h.Host)
	}
	slices.SortFunc(out, topo.NaturalCompare)
	return out
}

// checkDomains lists NVLink domains and finds those that lack hosts.
func (f *Fleet) checkDomains() {
	tells := map[string]bool{} // classes with hosts whose domain is known
	withDomain := slices.DeleteFunc(f.known(), func(h *Host) bool { return h.NVLinkDomain == "" })
	for _, same := range group.By(withDomain, func(h *Host) string { return h.NVLinkDomain }) {
		d := Domain{Domain: same[0].NVLinkDomain, Hosts: hostNames(same)}
		for _, h := range same {
			d.GPUs += len(h.GPUs)
			tells[h.Class] = true
		}
		f.Domains = append(f.Domains, d)
	}
	slices.SortFunc(f.Domains, func(a, b Domain) int { return topo.NaturalCompare(a.Domain, b.Domain) })
	withGPUs := slices.DeleteFunc(f.known(), func(h *Host) bool { return len(h.GPUs) == 0 })
	switch {
	case len(withGPUs) == 0:
		return
	case len(withDomain) == 0:
		f.unknown(CodeDomainIncomplete, "no document tells its host's NVLink domain", "documents of topoctl discover tell it where NVML does; nvidia-smi -q shows ClusterUUID and CliqueId where there is one", nil)
		return
	}
	silent := hostNames(slices.DeleteFunc(withGPUs, func(h *Host) bool { return h.NVLinkDomain != "" || !tells[h.Class] }))
	if len(silent) > 0 {
		f.unknown(CodeDomainIncomplete, fmt.Sprintf("%s: %s not tell the NVLink domain, others of the class do", text.Join(silent, mostNames), text.Noun(len(silent), "its document does", "their documents do")), "", silent)
	}
	missing := append(f.Missing(), silent...)
	counts := map[int]int{}
	for _, d := range f.Domains {
		counts[len(d.Hosts)]++
	}
	most, ok := majorityOf(counts)
	if !ok {
		if len(counts) > 1 {
			f.unknown(CodeDomainIncomplete, fmt.Sprintf("%s have different numbers of hosts, and no majority says which is right", text.Plural(len(f.Domains), "NVLink domain")), "", nil)
		}
		return
	}
	for _, d := range f.Domains {
		if lacks := most - len(d.Hosts); lacks > 0 && lacks <= len(missing) {
			f.unknown(CodeDomainIncomplete, fmt.Sprintf("NVLink domain %s has %s, its sisters %d: the rest may be among those that are not known: %s", d.Domain, text.Plural(len(d.Hosts), "host"), most, text.Join(missing, mostNames)),
				"collect them, or ask nvidia-smi -q (Fabric) on them", d.Hosts)
		} else if lacks > 0 {
			f.find(Finding{Code: CodeDomainIncomplete, Severity: doctor.Warning, Hosts: d.Hosts, Subjects: []string{d.Domain},
				Text:     fmt.Sprintf("NVLink domain %s has %s, its sisters %d", d.Domain, text.Plural(len(d.Hosts), "host"), most),
				Evidence: []string{fmt.Sprintf("%s: %s", d.Domain, text.Join(d.Hosts, mostNames))},
				Fix:      "look for hosts that were not collected, and for trays that left the domain (nvidia-smi -q: Fabric)"})
		}
	}
}

// firmwareName matches the name that the firmware gives an adapter: "MT4129 ConnectX7".
var firmwareName = regexp.MustCompile(`^MT\d{4,}\b`)

// checkNames finds ports whose NodeDescription is the firmware's: tools that read host names from it find none.
func (f *Fleet) checkNames() {
	told := 0
	for i := range f.Hosts {
		h := &f.Hosts[i]
		var names, evidence []string
		for j := range h.Ports {
			p := &h.Ports[j]
			if p.Description == "" {
				continue
			}
			told++
			if strings.Contains(p.Description, "Mellanox Technologies") || strings.HasPrefix(p.Description, "localhost") || firmwareName.MatchString(p.Description) {
				names = append(names, p.ShortName())
				evidence = append(evidence, fmt.Sprintf("NodeDescription of %s is %q", p.ShortName(), p.Description))
			}
		}
		if len(names) > 0 {
			f.find(Finding{Code: CodeNameDefault, Severity: doctor.Info, Hosts: []string{h.Host}, Text: fmt.Sprintf("the fabric does not know %s by the name of %s", text.Join(names, mostNames), h.Host),
				Evidence: evidence, Fix: "rdma-core's rdma-ndd sets \"HOST DEVICE\"; topograph and others drop ports without it"})
		}
	}
	if told == 0 {
		f.unknown(CodeNameDefault, "no NodeDescription is known", "discover the fabric with ibnetdiscover", nil)
	}
}
