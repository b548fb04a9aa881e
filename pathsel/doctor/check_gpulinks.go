package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
)

// nvidia lists the NVIDIA GPUs, and those whose vendor is not known.
func (h *host) nvidia() []*topo.GPU {
	return matching(h.t.GPUs, func(g *topo.GPU) bool { return g.Vendor == "nvidia" || g.Vendor == "" })
}

// linksKnown says whether the direct links of a GPU are known: NVML answered for it, or the input lists links of other
// GPUs of its vendor, so that it would list those of this one too.
func (h *host) linksKnown(g *topo.GPU) bool {
	return g.KnownFrom == "driver" || h.imported() && !h.links.Unknown[g.ID] && slices.ContainsFunc(h.gpus, func(o *topo.GPU) bool {
		return o.Vendor == g.Vendor && h.links.Of(o.ID) > 0
	})
}

// withoutNVML ends the sentence about something that only NVML reports.
func (h *host) withoutNVML() string {
	if h.imported() {
		return "is not known"
	}
	return "is not known: NVML did not answer"
}

// askNVML says how to get what only NVML reports.
func (h *host) askNVML() string {
	switch {
	case h.imported():
		return h.lookAgain()
	case h.live():
		return "run topoctl where NVML can be loaded (libnvidia-ml.so.1) and the GPUs can be used; topoctl version says whether NVML is built in"
	}
	return "record the host where NVML can be loaded"
}

func checkNVLinkMissing(h *host) (o outcome) {
	gpus := h.nvidia()
	var unlinked []topo.ID // without links on a host with switches
	for _, g := range gpus {
		o.judged++
		switch {
		case !h.linksKnown(g):
			o.missing("the state of NVLinks "+h.withoutNVML(), h.askNVML(), g.ID)
		case h.links.Of(g.ID) > 0 || h.hiddenLinks(g.ID):
		case len(h.t.NVSwitches) > 0:
			unlinked = append(unlinked, g.ID)
		default:
			if f := h.unlike(g, gpus); f != nil {
				o.find(*f)
			}
		}
	}
	if len(unlinked) > 0 {
		o.find(Finding{Severity: Error, Subjects: unlinked, Evidence: []string{h.linkEvidence(h.GPU(unlinked[0])), h.t.NVSwitches[0].Evidence},
			Text: fmt.Sprintf("no active NVLink, though the host has %s: CUDA does not start on such GPUs until the fabric is set up", text.Plural(len(h.t.NVSwitches), "NVSwitch")),
			Fix:  "start the fabric manager in the version of the driver: systemctl status nvidia-fabricmanager"})
	}
	return o
}

// unlike is the finding about a GPU without NVLinks if another GPU of its model has some, or another GPU if
// models are not known; nil if there is no such GPU.
func (h *host) unlike(g *topo.GPU, gpus []*topo.GPU) *Finding {
	for _, other := range gpus {
		n := h.links.Of(other.ID)
		model := cmp.Or(g.Model, g.ComputeCap)
		if n == 0 || model != cmp.Or(other.Model, other.ComputeCap) {
			continue
		}
		f := Finding{Severity: Warning, Subjects: []topo.ID{g.ID}, Evidence: []string{h.linkEvidence(g)},
			Text: fmt.Sprintf("no active NVLink, while %s of the same model (%s) has %d", other.ID, model, n),
			Fix:  fmt.Sprintf("nvidia-smi nvlink -s -i %s; look at dmesg for Xid messages", index(g))}
		switch {
		case model == "":
			f.Text = fmt.Sprintf("no active NVLink, while %s has %d; whether both are of one model is not known", other.ID, n)
		case g.Model == "":
			f.Text = fmt.Sprintf("no active NVLink, while %s of the same compute capability (%s) has %d", other.ID, model, n)
		}
		return &f
	}
	return nil
}

// linkEvidence is where it shows which links a GPU has.
func (h *host) linkEvidence(g *topo.GPU) string {
	if g.KnownFrom == "driver" {
		return nvlinkState
	}
	for i := range h.t.Links { // the driver's files, which are the same for all GPUs
		if f, ok := h.t.Links[i].Facts.Get("kind"); ok && h.t.Links[i].Kind == topo.LinkXGMI && !h.imported() {
			return f.Where
		}
	}
	return g.Evidence
}

// nvlinkState is the call that tells whether an NVLink is active.
const nvlinkState = "nvmlDeviceGetNvLinkState"

// index is how NVIDIA's tools call a GPU.
func index(g *topo.GPU) string {
	switch {
	case g.BDF != nil:
		return g.BDF.String()
	case g.NVMLIndex != nil:
		return fmt.Sprint(*g.NVMLIndex)
	}
	return fmt.Sprint(g.Index)
}

// hiddenLinks says whether NVLinks of a GPU lead to what is not visible here.
func (h *host) hiddenLinks(g topo.ID) bool {
	return slices.ContainsFunc(h.t.Warnings, func(w topo.Warning) bool {
		return w.Code == topo.CodePartialView && w.Subject == g && strings.HasPrefix(w.Evidence, "nvmlDeviceGetNvLink")
	})
}

func checkNVLinkUneven(h *host) (o outcome) {
	var models groups[string, *topo.GPU]
	var unknown, hidden []topo.ID
	for _, g := range h.gpus {
		switch {
		case g.Vendor == "intel":
		case h.hiddenLinks(g.ID):
			hidden = append(hidden, g.ID)
		case (g.Vendor == "nvidia" || h.imported()) && !h.linksKnown(g), g.KnownFrom == "pci":
			unknown = append(unknown, g.ID)
		default:
			models.add(g.Vendor+" "+cmp.Or(g.Model, g.ComputeCap), g)
		}
	}
	var none []topo.ID
	models.each(func(_ string, gpus []*topo.GPU) {
		without := func(g *topo.GPU) bool { return h.links.Of(g.ID) == 0 }
		if most := h.mostLinks(gpus); most > 0 {
			for _, g := range gpus {
				switch {
				case !without(g):
				case g.Vendor == "amd":
					o.judged++
					o.find(h.fewerLinks(g, 0, most))
				default:
					none = append(none, g.ID)
				}
			}
			gpus = slices.DeleteFunc(slices.Clone(gpus), without)
		}
		for _, alike := range h.alike(gpus) {
			if len(alike) > 1 {
				h.unevenLinks(&o, alike)
			}
		}
	})
	for _, p := range h.links.Apart {
		said := "no NVLink"
		if p.Class.Links > 0 {
			said = text.Plural(p.Class.Links, "NVLink")
		}
		o.find(Finding{Severity: Warning, Subjects: []topo.ID{p.A, p.B}, Evidence: []string{h.GPU(p.A).Evidence, h.GPU(p.B).Evidence},
			Text: fmt.Sprintf("%s between these two (%s), though each has %d to others through switches that all share", said, p.Class, p.Want),
			Fix:  fmt.Sprintf("nvidia-smi topo -p2p n shows which pairs are cut off; compare nvidia-smi nvlink -s -i %s and -i %s, and restart the fabric manager", index(h.GPU(p.A)), index(h.GPU(p.B)))})
	}
	if len(unknown) > 1 { // one GPU has none to compare it with
		o.missing("links between GPUs are not known", h.askNVML(), unknown...)
	}
	o.missing("some of its NVLinks lead to devices that are hidden here", "run topoctl outside the container or guest", hidden...)
	o.missing("it has no active NVLink at all", "see nvlink-missing", none...)
	if o.judged > 0 {
		o.note = text.Plural(o.judged, "GPU")
	}
	return o
}

// mostLinks is the largest number of links that some GPU has.
func (h *host) mostLinks(gpus []*topo.GPU) int {
	return slices.Max(mapped(gpus, func(g *topo.GPU) int { return h.links.Of(g.ID) }))
}

// unevenLinks finds the GPUs that have fewer links than others that are alike.
func (h *host) unevenLinks(o *outcome, alike []*topo.GPU) {
	most := h.mostLinks(alike)
	for _, g := range alike {
		o.judged++
		if n := h.links.Of(g.ID); n < most {
			o.find(h.fewerLinks(g, n, most))
		}
	}
}

// fewerLinks is the finding about a GPU that has fewer links than others that are alike.
func (h *host) fewerLinks(g *topo.GPU, n, most int) Finding {
	f := Finding{Severity: Warning, Subjects: []topo.ID{g.ID}, Evidence: []string{h.linkEvidence(g)},
		Text: fmt.Sprintf("%d of %d links are active: others of its model (%s) have %d", n, most, cmp.Or(g.Model, g.ComputeCap, "model unknown"), most),
		Fix:  fmt.Sprintf("nvidia-smi nvlink -s -i %s shows which link is down, nvidia-smi nvlink -e its errors", index(g))}
	if g.Vendor == "amd" {
		f.Fix = "amd-smi xgmi shows the links and their errors; dmesg; reset the GPU or have the board looked at"
	}
	return f
}

// alike splits the GPUs of a model into sets that should have equally many links: all of them, or, if two GPUs are the
// dies of one package, the dies with more links and the dies with fewer.
func (h *host) alike(gpus []*topo.GPU) [][]*topo.GPU {
	var more, fewer []*topo.GPU
	for _, g := range gpus {
		twin := h.twin(g, gpus)
		if len(gpus) < 4 || twin == nil || h.twin(twin, gpus) != g {
			return [][]*topo.GPU{gpus}
		}
		switch order := cmp.Compare(h.links.Of(g.ID), h.links.Of(twin.ID)); {
		case order > 0, order == 0 && g.Index < twin.Index:
			more = append(more, g)
		default:
			fewer = append(fewer, g)
		}
	}
	return [][]*topo.GPU{more, fewer}
}

// twin is the GPU to which another has more links than to any other, nil if there is none.
func (h *host) twin(g *topo.GPU, gpus []*topo.GPU) (twin *topo.GPU) {
	most := 0
	for _, o := range gpus {
		if o == g {
			continue
		}
		switch n := h.linksBetween(g.ID, o.ID); {
		case n > most:
			most, twin = n, o
		case n == most:
			twin = nil
		}
	}
	return twin
}

// linksBetween is the number of direct links of two GPUs.
func (h *host) linksBetween(a, b topo.ID) (n int) {
	for i := range h.links.Links {
		if l := &h.links.Links[i]; l.A == a && l.B == b || l.A == b && l.B == a {
			n += l.Count
		}
	}
	return n
}

func checkP2P(h *host) (o outcome) {
	gpus := h.nvidia()
	if len(gpus) < 2 {
		return notApplicable("fewer than two NVIDIA GPUs")
	}
	type refusal struct {
		severity Severity
		reason   string
		where    string
	}
	var refused groups[refusal, [2]topo.ID]
	for i, a := range gpus {
		silent := false
		for j, b := range gpus {
			if i == j || a.Visible != nil && !*a.Visible || b.Visible != nil && !*b.Visible {
				continue
			}
			answer := a.P2P[b.ID]
			switch {
			case answer == "" || answer == "unknown":
				silent = true
			case answer == "ok":
				o.judged++
			case i < j || b.P2P[a.ID] == "ok":
				severity, where := h.refusal(a.ID, b.ID)
				refused.add(refusal{severity, answer, where}, [2]topo.ID{a.ID, b.ID})
			}
		}
		if silent {
			o.missing("peer access "+h.withoutNVML(), h.askNVML(), a.ID)
		}
	}
	refused.each(func(r refusal, pairs [][2]topo.ID) {
		var both []topo.ID
		for _, p := range pairs {
			both = append(both, p[:]...)
		}
		slices.SortFunc(both, func(a, b topo.ID) int { return topo.NaturalCompare(string(a), string(b)) })
		example := fmt.Sprintf("%s and %s", pairs[0][0], pairs[0][1])
		if len(pairs) > 1 {
			example = fmt.Sprintf("%s, such as %s", text.Plural(len(pairs), "pair"), example)
		}
		o.find(Finding{Severity: r.severity, Subjects: slices.Compact(both), Evidence: []string{"nvmlDeviceGetP2PStatus = " + r.reason},
			Text: fmt.Sprintf("peer access is refused (%s) %s: %s", r.reason, r.where, example), Fix: refusalFix(r.reason, r.severity)})
	})
	o.note = text.Plural(o.judged/2, "pair")
	return o
}

// refusal says how bad it is that two GPUs may not reach each other.
func (h *host) refusal(a, b topo.ID) (Severity, string) {
	switch h.class(a, b).Kind {
	case topo.ClassNV:
		return Error, "beside an NVLink, NCCL stops there"
	case topo.ClassPIX, topo.ClassPXB:
		return Warning, "below a common PCIe switch, transfers go through host memory"
	}
	return Info, "between GPUs without a link or switch in common"
}

func refusalFix(reason string, s Severity) string {
	switch {
	case strings.Contains(reason, "regkey"):
		return "remove the driver option that turns peer access off (NVreg_RegistryDwords in /etc/modprobe.d)"
	case s == Info:
		return "nothing, unless it was expected: such pairs exchange data through host memory"
	}
	return "nvidia-smi topo -p2p r shows all pairs; look for MIG, confidential computing, IOMMU and ACS, and in a guest for peers outside its clique"
}

func checkMIG(h *host) (o outcome) {
	for _, g := range h.nvidia() {
		o.judged++
		switch {
		case g.MIG != nil && g.MIG.Enabled:
			o.find(Finding{Severity: Info, Subjects: []topo.ID{g.ID}, Evidence: []string{"nvmlDeviceGetMigMode"},
				Text: fmt.Sprintf("MIG is on (%s): its partitions have no peer access and no NVLink to other GPUs", text.Plural(len(g.MIG.Instances), "partition")),
				Fix:  fmt.Sprintf("nvidia-smi -i %s -mig 0, if transfers between GPUs matter more than partitions", index(g))})
		case g.KnownFrom != "driver":
			o.missing("MIG mode "+h.withoutNVML(), h.askNVML(), g.ID)
		}
	}
	return o
}
