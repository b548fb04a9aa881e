package audit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
)

// blameIdle says for ports that carried too little what may have kept data off them: variables of
// processes, missing queue pairs, or what the logs say.
func (j *judge) blameIdle() {
	idle := 0
	for i := range j.ports {
		p := &j.ports[i]
		if p.Verdict != Idle && p.Verdict != Below {
			continue
		}
		idle++
		add := func(reason string) {
			if reason != "" && !slices.Contains(p.Reasons, reason) {
				p.Reasons = append(p.Reasons, reason)
			}
		}
		if len(p.For) > 0 {
			add(fmt.Sprintf("the port of %s", text.List(p.For, 4)))
		}
		add(j.variableAgainst(&p.on))
		if j.r.Transport == pathsel.RDMA && p.Verdict == Idle && j.a.looked && !j.a.held.NoQueuePairs && len(p.Users) == 0 {
			add("no process of this PID namespace has a queue pair on it")
		}
		if p.Channels != nil && *p.Channels == 0 && j.r.Unit != Channels {
			add("the log names no channel on it")
		}
	}
	for i := range j.ports {
		if p := &j.ports[i]; p.Verdict == Above && idle > 0 && p.planned() > 0 {
			reason := fmt.Sprintf("it carries what %s should", text.Plural(idle, "idle or slow port"))
			if !slices.Contains(p.Reasons, reason) {
				p.Reasons = append([]string{reason}, p.Reasons...)
			}
		}
	}
}

// variableAgainst finds a process that is told not to use a port. Processes that hold queue pairs
// or connections come first, then by PID.
func (j *judge) variableAgainst(p *pathsel.Port) string {
	processes := slices.Clone(j.r.Processes)
	slices.SortStableFunc(processes, func(x, y Process) int {
		return btoi(j.a.holds(y.PID)) - btoi(j.a.holds(x.PID))
	})
	for _, x := range processes {
		for _, v := range x.Variables {
			if j.r.Transport == pathsel.RDMA && disablesRDMA(v) || excludes(v, p) {
				return fmt.Sprintf("%s of %s is %q", v.Name, ProcessName(x.PID, x.Name), v.Value)
			}
		}
	}
	return ""
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// ProcessName is what people call a process: "vllm (PID 7)".
func ProcessName(pid int, name string) string {
	if name == "" {
		return "PID " + strconv.Itoa(pid)
	}
	return name + " (PID " + strconv.Itoa(pid) + ")"
}

// disablesRDMA says whether a variable keeps an engine from RDMA.
// Source: NCCL's user guide (NCCL_IB_DISABLE, NCCL_NET), UCX's FAQ (UCX_TLS), Mooncake's transfer engine
// (MC_FORCE_TCP).
func disablesRDMA(v Variable) bool {
	switch v.Name {
	case "NCCL_IB_DISABLE", "MC_FORCE_TCP":
		return v.Value == "1" || strings.EqualFold(v.Value, "true")
	case "NCCL_NET":
		return v.Value == "Socket"
	case "UCX_TLS":
		if v.Value == "" || strings.HasPrefix(v.Value, "^") {
			return false
		}
		return !slices.ContainsFunc(strings.Split(v.Value, ","), func(t string) bool {
			return t == "all" || t == "ib" || t == "srd" || strings.HasPrefix(t, "rc") || strings.HasPrefix(t, "dc") || strings.HasPrefix(t, "ud")
		})
	}
	return false
}

// excludes says whether a variable keeps an engine from using this port.
// Source: NCCL's user guide (NCCL_IB_HCA: a list of prefixes, "=" exact, "^" all but these, "^=" both;
// NCCL_SOCKET_IFNAME alike), UCX's FAQ (UCX_NET_DEVICES: names with ports, "all"), NVSHMEM's guide
// (NVSHMEM_HCA_LIST as NCCL_IB_HCA).
func excludes(v Variable, p *pathsel.Port) bool {
	if v.Value == "" {
		return false
	}
	switch {
	case v.Name == "NCCL_IB_HCA" && p.RDMA(), v.Name == "NVSHMEM_HCA_LIST" && p.RDMA():
		return !listed(v.Value, p.Device, p.Number)
	case v.Name == "NCCL_SOCKET_IFNAME" && !p.RDMA():
		return !listed(v.Value, p.Netdev, 0)
	case v.Name == "UCX_NET_DEVICES":
		for item := range strings.SplitSeq(v.Value, ",") {
			name, number, numbered := strings.Cut(item, ":")
			switch {
			case item == "all", text.Matches(name, p.Device) && p.Device != "" && (!numbered || p.Number == 0 || number == strconv.Itoa(p.Number)):
				return false
			case name == p.Netdev && !p.RDMA():
				return false
			}
		}
		return !strings.HasPrefix(v.Value, "^")
	}
	return false
}

// listed says whether one of NCCL's lists includes a device.
func listed(list, device string, port int) bool {
	list, except := strings.CutPrefix(list, "^")
	list, exact := strings.CutPrefix(list, "=")
	found := false
	for item := range strings.SplitSeq(list, ",") {
		name, number, numbered := strings.Cut(item, ":")
		match := strings.HasPrefix(device, name)
		if exact {
			match = device == name
		}
		if numbered && port != 0 {
			match = match && number == strconv.Itoa(port)
		}
		found = found || match && name != ""
	}
	return found != except
}

// Engines are those that --for takes, with the beginnings of the variables that they read.
var Engines = []struct {
	Name      string
	Variables []string
	Log       Engine
}{
	{"nccl", []string{"NCCL_", "RCCL_", "FI_"}, NCCL},
	{"ucx", []string{"UCX_"}, UCX},
	{"nixl", []string{"NIXL_", "UCX_"}, UCX},
	{"mooncake", []string{"MC_", "MOONCAKE_"}, ""},
	{"nvshmem", []string{"NVSHMEM_"}, ""},
	{"vllm", []string{"VLLM_", "NCCL_", "UCX_", "NIXL_", "MC_", "MOONCAKE_", "GLOO_"}, ""},
	{"sglang", []string{"SGLANG_", "NCCL_", "UCX_", "NIXL_", "MC_", "MOONCAKE_", "GLOO_"}, ""},
}

// engineReads says whether an engine reads a variable; "" stands for all engines.
func engineReads(engine, variable string) bool {
	for _, e := range Engines {
		if e.Name == engine {
			return slices.ContainsFunc(e.Variables, func(p string) bool { return strings.HasPrefix(variable, p) })
		}
	}
	return engine == ""
}

// engineLogs says whether an engine writes logs of a kind. Serving engines write those of every kind.
func engineLogs(engine string, of Engine) bool {
	for _, e := range Engines {
		if e.Name == engine {
			return e.Log == "" || e.Log == of
		}
	}
	return engine == ""
}
