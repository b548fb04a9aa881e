package export

import (
	"fmt"
	"io"
	"slices"
	"strings"

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

// Engines lists the engines, for flags and completion.
func Engines() []Engine { return []Engine{NCCL, UCX, NVSHMEM, VLLM, SGLang, MooncakeTool} }

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
func (e Engine) TakesTopology() bool { return e == NCCL || e == MooncakeTool }

// writer is what knows an engine: its name in a sentence, and what it sets.
type writer struct {
	title string
	fill  func(*env)
}

var writers = map[Engine]writer{
	NCCL:         {"NCCL", (*env).nccl},
	UCX:          {"UCX", (*env).ucx},
	NVSHMEM:      {"NVSHMEM", (*env).nvshmem},
	VLLM:         {"vLLM", (*env).vllm},
	SGLang:       {"SGLang", (*env).sglang},
	MooncakeTool: {"Mooncake", (*env).mooncake},
}

// env collects the settings of one engine on one host.
type env struct {
	h      *pathsel.Host
	facts  *facts
	o      EnvOptions
	ranks  []rank
	ports  []pathsel.Port // of all ranks
	head   []string
	common []setting
}

// Env writes an engine's environment for the local ranks of a host as a text
// that a shell can source. Each line has its reason in a comment above; what is
// not known is left out with a comment. The ports are those of the balanced
// plan of the whole host.
func Env(w io.Writer, h *pathsel.Host, o EnvOptions) error {
	engine, ok := writers[o.For]
	if !ok {
		return fmt.Errorf("export: environment for %q: want one of %s", o.For, engineNames())
	}
	ranks, err := makeRanks(h, o.Visible, o.Ranks)
	if err != nil {
		return err
	}
	if o.Rank >= len(ranks) {
		return fmt.Errorf("export: rank %d: there are %d local ranks, counted from 0", o.Rank, len(ranks))
	}
	e := &env{h: h, facts: newFacts(h.Topology()), o: o, ranks: ranks, ports: allPorts(ranks)}
	engine.fill(e)
	if _, err := w.Write(e.script(engine.title)); err != nil {
		return fmt.Errorf("export: write: %w", err)
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
	s.comment("", fmt.Sprintf("%s on %s: %s. Written by topoctl.", title, host, e.ranksText()))
	for _, line := range append(e.o.Visible.Notes, e.head...) {
		s.comment("", line)
	}
	if len(e.common) > 0 {
		s.out.WriteString("\n")
		s.settings("", e.common)
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

func (e *env) ranksText() string {
	n, unit := len(e.ranks), "local ranks"
	if n == 1 {
		unit = "local rank"
	}
	if e.ranks[0].gpu == nil {
		return fmt.Sprintf("%d %s without GPU, on the NUMA nodes in turn", n, unit)
	}
	return fmt.Sprintf("%d %s, rank N on visible GPU N", n, unit)
}

// set and leaveOut add to the settings of all ranks.
func (e *env) set(name, value string, why ...string) {
	e.common = append(e.common, setting{name: name, value: value, why: why, ok: true})
}

func (e *env) leaveOut(name, why string) {
	e.common = append(e.common, setting{name: name, why: []string{why}})
}

// set and leaveOut add to the settings of one rank.
func (r *rank) set(name, value string, why ...string) {
	r.settings = append(r.settings, setting{name: name, value: value, why: why, ok: true})
}

func (r *rank) leaveOut(name, why string) {
	r.settings = append(r.settings, setting{name: name, why: []string{why}})
}

// number adds a variable whose value follows from the ports: one for all ranks
// if there is one, else one for each rank. perRank is false where the engine
// wants the same everywhere. find gives "" as reason where ports need none.
func (e *env) number(name string, perRank bool, find func([]pathsel.Port) (int, string, bool)) {
	value, why, ok := find(e.ports)
	switch {
	case ok:
		e.set(name, fmt.Sprint(value), why)
		return
	case why == "":
		return
	case !perRank || !slices.ContainsFunc(e.ranks, func(r rank) bool { _, _, ok := find(r.ports); return ok }):
		e.leaveOut(name, why)
		return
	}
	for i := range e.ranks {
		r := &e.ranks[i]
		if value, why, ok := find(r.ports); ok {
			r.set(name, fmt.Sprint(value), why)
		} else if why != "" {
			r.leaveOut(name, why)
		}
	}
}

// rdma says whether ports are RDMA's.
func (e *env) rdma() bool { return e.h.Transport() == pathsel.RDMA }
