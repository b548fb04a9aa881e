package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

// Codes of findings about the collection.
const (
	CodeNotReached Code = "host-not-reached"
	CodePartial    Code = "host-partial"
)

// Build puts hosts together and judges them. Names must be unique. network is what is known of the
// fabric, or nil. The caller sets tool and time.
func Build(hosts []Host, network *Network) (*Fleet, error) {
	f := &Fleet{Schema: Schema, Hosts: slices.Clone(hosts)}
	slices.SortFunc(f.Hosts, func(a, b Host) int { return topo.NaturalCompare(a.Host, b.Host) })
	for i := range f.Hosts {
		h := &f.Hosts[i]
		h.Class = ""
		h.Ports = slices.Clone(h.Ports) // cables are written into them
		if i > 0 && h.Host == f.Hosts[i-1].Host {
			return nil, fmt.Errorf("fleet: host %q is there twice", h.Host)
		}
	}
	f.judge(network)
	return f, nil
}

// Rebuild judges the hosts of a document again, with a network in place of the document's where one
// is given.
func (f *Fleet) Rebuild(network *Network) (*Fleet, error) {
	if network == nil {
		network = f.network()
	}
	out, err := Build(f.Hosts, network)
	if err == nil {
		out.Tool, out.CapturedAt = f.Tool, f.CapturedAt
	}
	return out, err
}

func (f *Fleet) judge(network *Network) {
	for i := range f.Hosts {
		f.reached(&f.Hosts[i])
	}
	byClass := f.classify()
	f.compare()
	f.sumDoctor()
	f.checkIdentities()
	f.checkDomains()
	if network == nil {
		f.noNetwork()
	} else {
		f.cables(network, byClass)
	}
	f.sort()
}

// sort puts findings in the order of a document. Within a severity, findings that only several hosts together show come
// before those that the doctor has about each host.
func (f *Fleet) sort() {
	slices.SortStableFunc(f.Findings, func(a, b Finding) int {
		return cmp.Or(severityRank(a.Severity)-severityRank(b.Severity), strings.Compare(b.Source, a.Source), strings.Compare(string(a.Code), string(b.Code)),
			compareLists(a.Hosts, b.Hosts), compareLists(a.Subjects, b.Subjects))
	})
	slices.SortStableFunc(f.Unknown, func(a, b Unknown) int { return strings.Compare(string(a.Code), string(b.Code)) })
}

func severityRank(s doctor.Severity) int {
	return slices.Index([]doctor.Severity{doctor.Error, doctor.Warning, doctor.Info}, s)
}

func compareLists(a, b []string) int { return slices.CompareFunc(a, b, topo.NaturalCompare) }

func (f *Fleet) find(x Finding) {
	x.Source = cmp.Or(x.Source, SourceFleet)
	if x.Hosts == nil {
		x.Hosts = []string{}
	}
	f.Findings = append(f.Findings, x)
}

func (f *Fleet) unknown(code Code, text, how string, hosts []string) {
	f.Unknown = append(f.Unknown, Unknown{Code: code, Hosts: hosts, Text: text, How: how})
}

// reached notes that a host was not reached, or is known only in part.
func (f *Fleet) reached(h *Host) {
	switch h.Status {
	case NotReached:
		f.unknown(CodeNotReached, fmt.Sprintf("%s was not reached: %s", h.Host, cmp.Or(h.Reason, noReason)), "collect again with --resume once it answers", []string{h.Host})
	case Partial:
		f.unknown(CodePartial, fmt.Sprintf("%s: %s", h.Host, cmp.Or(h.Reason, "its document is incomplete")), "", []string{h.Host})
	}
}

// known lists the hosts whose documents were read, in full or in part.
func (f *Fleet) known() []*Host { return f.hosts(true) }

func (f *Fleet) hosts(known bool) []*Host {
	var out []*Host
	for i := range f.Hosts {
		if h := &f.Hosts[i]; h.Known() == known {
			out = append(out, h)
		}
	}
	return out
}

// classify puts hosts of one fingerprint in classes, the largest first.
func (f *Fleet) classify() [][]*Host {
	withPrint := slices.DeleteFunc(f.known(), func(h *Host) bool { return h.Fingerprint == "" })
	classes := group.By(withPrint, func(h *Host) string { return h.Fingerprint })
	slices.SortStableFunc(classes, func(a, b []*Host) int {
		return cmp.Or(len(b)-len(a), strings.Compare(a[0].Fingerprint, b[0].Fingerprint))
	})
	var prints []string
	for _, hosts := range classes {
		prints = append(prints, hosts[0].Fingerprint)
	}
	names := shortNames("c-", prints)
	for _, hosts := range classes {
		c := Class{Class: names[hosts[0].Fingerprint], Fingerprint: hosts[0].Fingerprint, Model: hosts[0].model(), GPUs: len(hosts[0].GPUs), Hosts: hostNames(hosts)}
		ports := map[int]int{}
		for _, h := range hosts {
			h.Class = c.Class
			n := 0
			for j := range h.Ports {
				if h.Ports[j].Role == pathsel.RoleData {
					n++
				}
			}
			ports[n]++
		}
		c.DataPorts = mostFrequent(ports, func(a, b int) int { return b - a })
		if len(hosts[0].GPUs) > 0 {
			c.GPUModel = hosts[0].GPUs[0].Model
		}
		f.Classes = append(f.Classes, c)
	}
	return classes
}

// model names the product that the host is, or else its CPU.
func (h *Host) model() string {
	return strings.TrimSpace(cmp.Or(h.Product, h.CPUModel, h.Arch))
}

// compare compares hosts of one kind by the facts about the whole host, and hosts of one class by their devices.
func (f *Fleet) compare() {
	var facts []Fact
	for _, hosts := range kinds(f.known()) {
		c := comparison{among: "kind:" + hosts[0].kindName(), hosts: hosts}
		counts := map[int]int{}
		for _, h := range hosts {
			counts[len(h.GPUs)]++
		}
		gpus, _ := majorityOf(counts)
		c.values = func(h *Host) []value {
			out := h.ofHost()
			if len(h.GPUs) == gpus { // else places mean nothing
				out = append(out, h.ofLinks()...)
			}
			return out
		}
		for _, x := range c.configurations() {
			f.find(x)
		}
		facts = append(facts, f.take(&c)...)
		withClass := slices.DeleteFunc(slices.Clone(hosts), func(h *Host) bool { return h.Class == "" })
		for _, hosts := range group.By(withClass, func(h *Host) string { return h.Class }) {
			c := comparison{among: hosts[0].Class, hosts: hosts, values: (*Host).ofDevices}
			facts = append(facts, f.take(&c)...)
		}
	}
	slices.SortStableFunc(facts, func(a, b Fact) int { return strings.Compare(a.Among, b.Among) })
	f.Facts = facts
}

// take runs a comparison and takes over what it finds.
func (f *Fleet) take(c *comparison) []Fact {
	c.run()
	for _, x := range c.oddities() {
		f.find(x)
	}
	for _, x := range c.disagreements() {
		f.find(x)
	}
	if len(c.hosts) == 1 {
		f.unknown(CodeNotCompared, fmt.Sprintf("%s: no other host is like it (%s)", c.hosts[0].Host, c.among), "collect other hosts of its kind, or compare with --against GOLDEN", hostNames(c.hosts))
	}
	return c.facts
}

// SourceFleet and SourceDoctor say where a finding is from: the comparison of hosts and the cables, or
// the checks of each host.
const (
	SourceFleet  = "fleet"
	SourceDoctor = "doctor"
)

// sumDoctor sums the findings of "topoctl doctor" up over the hosts.
func (f *Fleet) sumDoctor() {
	type hit struct {
		host *Host
		HostFinding
	}
	var hits []hit
	for _, h := range f.known() {
		for _, x := range h.Doctor {
			hits = append(hits, hit{h, x})
		}
	}
	of := len(f.known())
	for _, same := range group.By(hits, func(x hit) string { return string(x.Severity) + " " + string(x.Code) }) {
		finding := Finding{Code: Code(same[0].Code), Source: SourceDoctor, Severity: same[0].Severity}
		for _, x := range same {
			if !slices.Contains(finding.Hosts[max(0, len(finding.Hosts)-1):], x.host.Host) {
				finding.Hosts = append(finding.Hosts, x.host.Host)
			}
			for _, s := range x.Subjects {
				finding.Subjects = append(finding.Subjects, x.host.Host+"/"+s)
			}
		}
		say := func(x hit) string { return strings.TrimPrefix(text.Join(x.Subjects, mostNames)+": "+x.Text, ": ") }
		finding.Text, finding.Evidence = say(same[0]), []string{}
		from := "--from DOCUMENT"
		if len(finding.Hosts) == 1 {
			from = same[0].host.flag()
		} else {
			finding.Text = fmt.Sprintf("%d of %s: %s", len(finding.Hosts), text.Plural(of, "host"), say(same[0]))
		}
		const shown = 5
		for _, x := range same[:min(shown, len(same))] {
			if len(same) > 1 {
				finding.Evidence = append(finding.Evidence, x.host.Host+": "+say(x))
			}
		}
		finding.Fix = "\"topoctl doctor " + string(finding.Code) + " " + from + "\" says more"
		f.find(finding)
	}
}

// flag is the flag that makes a command read the host's document.
func (h *Host) flag() string {
	if file, ok := strings.CutPrefix(h.Source, "file "); ok && h.Document == "" {
		return "--from " + file
	}
	if name, ok := strings.CutPrefix(h.Source, "fixture:"); ok && h.Document == "" {
		return "--fixture " + name
	}
	return "--from " + cmp.Or(h.Document, "DOCUMENT")
}

// noNetwork says what cannot be checked without the fabric.
func (f *Fleet) noNetwork() {
	if len(f.known()) == 0 {
		return
	}
	for _, code := range []Code{CodeRailMiswired, CodeLeafThin, CodeLeafUplinkDown, CodeHostNotInFabric, CodePortNotInFabric, CodeNameDefault} {
		f.unknown(code, "which switches the ports are cabled to is not known", "use --fabric FILE", nil)
	}
}

// cables joins the network and judges it.
func (f *Fleet) cables(n *Network, byClass [][]*Host) {
	f.RailOnly, f.Switches, f.Links = n.RailOnly, slices.Clone(n.Switches), slices.Clone(n.Links)
	f.sortNetwork()
	f.unjoined = f.join(n)
	for _, c := range f.unjoined {
		if s := f.switchOf(c.Leaf); s != nil {
			s.UnjoinedPorts++
		}
	}
	source := cmp.Or(n.Source, "the fabric")
	f.checkPresence(source)
	should := f.checkRails(byClass)
	leaves := f.leaves()
	f.group(leaves, should)
	f.checkLeaves(leaves)
	f.checkNames()
}
