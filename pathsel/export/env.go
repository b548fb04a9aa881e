package export

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
)

// Engine is a library or program that takes its NICs from the environment.
type Engine string

// The engines.
const (
	NCCL         Engine = "nccl"
	UCX          Engine = "ucx"
	NVSHMEM      Engine = "nvshmem"
	VLLM         Engine = "vllm"
	SGLang       Engine = "sglang"
	MooncakeTool Engine = "mooncake"
)

// writers are the engines in the order of Engines. What an engine reads is in a file of
// its own, env_NAME.go: a new one is such a file, its name above and a line here.
var writers = []writer{
	{engine: NCCL, title: "NCCL", fill: (*env).nccl, takesTopology: true},
	{engine: UCX, title: "UCX", fill: (*env).ucx},
	{engine: NVSHMEM, title: "NVSHMEM", fill: (*env).nvshmem},
	{engine: VLLM, title: "vLLM", fill: (*env).vllm},
	{engine: SGLang, title: "SGLang", fill: (*env).sglang},
	{engine: MooncakeTool, title: "Mooncake", fill: (*env).mooncake, takesTopology: true},
}

type writer struct {
	engine        Engine
	title         string // in a sentence
	fill          func(*env)
	takesTopology bool // from a file
}

// Engines lists the engines, for flags and completion.
func Engines() []Engine {
	var out []Engine
	for _, w := range writers {
		out = append(out, w.engine)
	}
	return out
}

// EnvOptions say what Env writes.
type EnvOptions struct {
	For     Engine
	Visible Visible
	// Ranks is the number of local processes; 0 is one for each visible GPU.
	Ranks int
	// Rank picks one of them; -1 writes all.
	Rank int
	// TopologyFile is where the engine will find the topology that NCCLXML or
	// Mooncake wrote; "" leaves the engine to discover it.
	TopologyFile string
}

// TakesTopology says whether an engine reads a topology file.
func (e Engine) TakesTopology() bool {
	return slices.ContainsFunc(writers, func(w writer) bool { return w.engine == e && w.takesTopology })
}

// env collects the settings of one engine on one host.
type env struct {
	h     *pathsel.Host
	index *topo.Index
	o     EnvOptions
	ranks []rank
	ports []pathsel.Port // of all ranks
	blind string         // why no rank is given ports of its own: which are near is not known
	head  []string
	settings
}

// Env writes an engine's environment for the local ranks of a host as a text
// that a shell can source. Each line has its reason in a comment above; what is
// not known is left out with a comment. The ports are those of the balanced
// plan of the whole host.
func Env(w io.Writer, h *pathsel.Host, o EnvOptions) error {
	i := slices.IndexFunc(writers, func(w writer) bool { return w.engine == o.For })
	if i < 0 {
		return pkgerr.Errorf("export", "environment for %q: want one of %s", o.For, engineNames())
	}
	ranks, err := makeRanks(h, o.Visible, o.Ranks)
	if err != nil {
		return err
	}
	if o.Rank >= len(ranks) {
		return pkgerr.Errorf("export", "rank %d: there are %d local ranks, counted from 0", o.Rank, len(ranks))
	}
	e := &env{h: h, index: h.Index(), o: o, ranks: ranks, ports: allPorts(ranks)}
	e.blind = e.unseen()
	writers[i].fill(e)
	if _, err := w.Write(e.script(writers[i].title)); err != nil {
		return pkgerr.Errorf("export", "write: %w", err)
	}
	return nil
}

// unseen is why nothing tells which ports are near the ranks, "" where something does, or will tell the engine.
func (e *env) unseen() string {
	var locations []pathsel.Location
	for i := range e.ranks {
		locations = append(locations, e.ranks[i].location)
	}
	if why := e.h.Blind(locations...); why != nil && e.o.TopologyFile == "" {
		return why.Text
	}
	return ""
}

// mapped are the ranks, for variables that give each of them ports of its own. Where nothing tells which are near
// it leaves the variables out and gives no rank.
func (e *env) mapped(variables ...string) []rank {
	if e.blind == "" {
		return e.ranks
	}
	e.leaveOut(variables[0], e.blind)
	for _, name := range variables[1:] {
		e.leaveOut(name, "it goes with "+variables[0])
	}
	return nil
}

func engineNames() string {
	var names []string
	for _, e := range Engines() {
		names = append(names, string(e))
	}
	return strings.Join(names, ", ")
}

// script lays the settings out.
func (e *env) script(title string) []byte {
	var s script
	t := e.h.Topology()
	host := t.Host.Name
	if host == "" {
		host = "an unnamed host"
	}
	if e.blind != "" {
		s.comment("", fmt.Sprintf("%s, so no rank is given NICs of its own and %s chooses by itself; %s.", strings.ToUpper(e.blind[:1])+e.blind[1:], title, e.h.HowToSee()))
	} else if why := e.nothing(); why != "" {
		s.comment("", fmt.Sprintf("Nothing is set for %s on %s: %s. %s.", title, host, why, e.whatNow()))
	}
	s.comment("", fmt.Sprintf("%s on %s: %s. Written by topoctl.", title, host, e.ranksText()))
	for _, line := range append(e.o.Visible.Notes, e.head...) {
		s.comment("", line)
	}
	if len(e.settings) > 0 {
		s.out.WriteString("\n")
		s.settings("", e.settings)
	}
	some := false
	for i := range e.ranks {
		some = some || len(e.ranks[i].settings) > 0
	}
	switch {
	case some && e.o.Rank >= 0:
		r := &e.ranks[e.o.Rank]
		s.out.WriteString("\n")
		s.comment("", fmt.Sprintf("rank %d: %s", r.n, r.label()))
		s.settings("", r.settings)
	case some:
		s.out.WriteString("\n")
		s.ranks(e.ranks)
	}
	return s.out.Bytes()
}

// nothing is why the script sets no variable, "" where it sets one.
func (e *env) nothing() string {
	var all []setting
	for i := range e.ranks {
		if e.o.Rank < 0 || i == e.o.Rank {
			all = append(all, e.ranks[i].settings...)
		}
	}
	all = append(all, e.settings...)
	if len(all) == 0 || slices.ContainsFunc(all, func(s setting) bool { return s.ok }) {
		return ""
	}
	return strings.Join(all[0].why, "; ")
}

// whatNow is what a person can do who wanted settings and got none.
func (e *env) whatNow() string {
	if imported(e.h.Topology()) {
		return "Run topoctl export env on the host itself, or give --from what topoctl discover writes there"
	}
	return "topoctl path --plan and topoctl doctor say more"
}

func (e *env) ranksText() string {
	ranks := text.Plural(len(e.ranks), "local rank")
	if e.ranks[0].gpu == nil {
		return ranks + " without GPU, on the NUMA nodes in turn"
	}
	return ranks + ", rank N on visible GPU N"
}

// number adds a variable whose value follows from the ports: one for all ranks
// if there is one, else one for each rank. perRank is false where the engine
// wants the same everywhere. find gives "" as reason where ports need none.
func (e *env) number(name string, perRank bool, find func(*topo.Index, []pathsel.Port) (int, string, bool)) {
	value, why, ok := find(e.index, e.ports)
	switch {
	case ok:
		e.set(name, fmt.Sprint(value), why)
		return
	case why == "":
		return
	case !perRank || e.blind != "" || !slices.ContainsFunc(e.ranks, func(r rank) bool { _, _, ok := find(e.index, r.ports); return ok }):
		e.leaveOut(name, why)
		return
	}
	for i := range e.ranks {
		r := &e.ranks[i]
		if value, why, ok := find(e.index, r.ports); ok {
			r.set(name, fmt.Sprint(value), why)
		} else if why != "" {
			r.leaveOut(name, why)
		}
	}
}

// rdma says whether ports are RDMA's.
func (e *env) rdma() bool { return e.h.Transport() == pathsel.RDMA }

// devices are ports as "mlx5_0:1" and why some are not among them. refuse says
// why a port cannot be used at all, "" if it can.
func (e *env) devices(ports []pathsel.Port, refuse func(*pathsel.Port) string) (list, why []string) {
	var faults []fault
	for i := range ports {
		p := &ports[i]
		reason := refuse(p)
		switch {
		case reason != "":
		case rdmaTransport(e.index, p) == "iwarp":
			reason = "iWARP connects through rdma_cm only"
		case !listable(p.Device):
			reason = "the name cannot be written in a list"
		default:
			list = append(list, devicePort(p))
			continue
		}
		faults = append(faults, fault{p.Name, reason})
	}
	return list, together(faults, " cannot be listed: ")
}

// fault is why an engine cannot use something.
type fault struct{ name, reason string }

// together has a sentence for what cannot be used for one reason.
func together(faults []fault, verb string) []string {
	var out []string
	for _, same := range group.By(faults, func(f fault) string { return f.reason }) {
		var names []string
		for _, f := range same {
			names = append(names, f.name)
		}
		out = append(out, few(names)+verb+same[0].reason)
	}
	return out
}
