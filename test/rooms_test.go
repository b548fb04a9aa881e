package test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/internal/base/golden"
)

// rooms says what each room of the import table holds. docs/ARCHITECTURE.md shows both.
var rooms = map[string]string{
	"topoctl":                  "the engine of this host in three lines: discovery, RDMA and CUDA wired together",
	"cmd/topoctl":              "the command: `main`, scripts and golden files of what a user sees",
	"cmd/libtopoctl":           "the engine as a C library: exports, `topoctl.h` ([C API](c-api.md))",
	"discover":                 "`Discover`: the sources (sysfs, ghw, rdmamap, netlink, NVML) and the merging of what they say; `Capture`, `Sampler`, `Watch`",
	"discover/nvml":            "NVML as a source: a leaf, since importing it decides whether NVML is in the program",
	"discover/topo":            "the model: nodes, `Derive`, `Graph`, `Index`, `Matrix`, `Fingerprint`, the JSON document and its schemas",
	"discover/topo/hwlocxml":   "hwloc's XML, read and written",
	"discover/topo/ncclxml":    "NCCL's and RCCL's XML, read and written",
	"internal/base/amdsmi":     "the text, JSON and CSV of `amd-smi topology`, read",
	"internal/base/xgmi":       "what the numbers of AMD's driver say of a link between GPUs",
	"internal/base/nettext":    "the texts of `ibstat`, `ibdev2netdev`, `rdma link` and `ip addr`, laid over a topology",
	"internal/base/ibnet":      "the text of `ibnetdiscover`, read",
	"internal/base/lldp":       "what `lldpcli` prints of a host's neighbours, read",
	"internal/base/lspci":      "the text of `lspci -vv`, read",
	"discover/topo/nvsmi":      "the text of `nvidia-smi topo -m`, read and written",
	"engine":                   "the importable API: regions, peers, batches, explanations; carries out what the scheduler says",
	"engine/enginetest":        "transports for tests of programs that use engines",
	"engine/memory":            "memory outside Go's heap that users allocate or hand over, and what peers may do with it",
	"engine/memory/cuda":       "memory of GPUs ([GPU memory](gpu.md)): a leaf that users pass in",
	"engine/registry":          "where engines are and what they offer; where another registry plugs in",
	"engine/registry/etcd":     "engines found by name in etcd ([registry](registry.md)): a leaf that users pass in",
	"engine/transport/rdma":    "options and factory of RDMA: a leaf that users pass in",
	"examples":                 "small programs on the public API",
	"fixtures":                 "machines as data: descriptions and captures",
	"pathsel":                  "ports with role and usability, order for a location, joint capacity, plans, lanes between two hosts; every choice with its reasons",
	"pathsel/doctor":           "the checks of `topoctl doctor`: a file for each subject, a function for each check",
	"pathsel/export":           "choices as settings and formats of other tools: a file for each tool",
	"probe":                    "the report of a measurement ([topoctl.probe/v1](probe-report.md)) and its overlay",
	"tui":                      "the dashboard as a program: loop, header, dialogs, recording ([tui](tui.md))",
	"test":                     "this table; labs in network namespaces (`lanes`, `probelab`) and in virtual machines with RDMA ([`vmlab`](lab.md)); `soak`; `wire` (the protocol between engines in Python, against one in Go); `ceilings` (C programs that probes take turns with)",
	"internal/base/realid":     "identities of devices told from stand-ins and made-up ones",
	"internal/base/libvirtxml": "the PCI devices that a libvirt domain passes through, read",
	"internal/app/remap":       "a guest's devices paired with the host's, and the guest's topology with the host's switches ([remap](remap.md))",
	"internal/base/enginelog":  "what NCCL and UCX log about the devices that they use, read",
	"internal/base/owners":     "which processes have queue pairs and TCP connections on this host, and the variables that told them what to use",

	"internal/app/audit":               "whether ports carried what a plan says: shares, verdicts, what kept data off a port ([audit](audit.md))",
	"internal/app/agent":               "`topoctl agent`: an engine that serves memory and probes, and its HTTP pages",
	"internal/app/bench":               "`topoctl bench`: workloads, ceilings, report",
	"internal/app/bind":                "the engine for other languages: handles, memory by address, peers by name",
	"internal/app/cli":                 "the command line: `command` is what all share (streams, errors, output, hosts), then a package for each family",
	"internal/app/diagram":             "the host as a drawing: SVG and Graphviz DOT",
	"internal/app/diff":                "two hosts, or one host twice, compared",
	"internal/app/draw":                "tree and matrix as text",
	"internal/app/explain":             "one question about a host answered in full, for command and dashboard",
	"internal/app/fleet/ask":           "runs `ibnetdiscover` and `lldpcli` on this host",
	"internal/app/fleet/dra":           "attributes of network devices for Kubernetes' dynamic resource allocation",
	"internal/app/fleet/export":        "a fleet for Slurm, Kubernetes, ibsim and as a drawing: a file for each format",
	"internal/app/fleet/sources":       "networks from ibnetdiscover, LLDP and probe reports, and the fabric document of a fleet",
	"internal/app/dranet":              "the webhook that dranet asks about network devices",
	"internal/app/fleet":               "many hosts as one document: classes, facts, the odd one out, cables ([fleet](fleet.md))",
	"internal/app/fleet/collect":       "the documents of many hosts: files, folders, archives, agents, ssh",
	"internal/app/fleet/show":          "a fleet as text, SVG and HTML",
	"internal/app/hostview":            "a host as a tree of what is worth showing, for text and drawings",
	"internal/app/kv":                  "serving with a cache that moves: requests, and what became of each",
	"internal/app/kv/compute":          "times of prefill and decode by formula, with where they are from",
	"internal/app/kv/kvtest":           "a computation that takes a fixed time for each token, for tests",
	"internal/app/kv/layout":           "models, pages and tensor splits as strided copies",
	"internal/app/grants":              "the file that says which peer of an agent may do what",
	"internal/app/kv/metrics":          "vLLM's metrics, and the parts of the time to the first token",
	"internal/app/kv/predict":          "serving over the simulator, and what-ifs ([serving](serving.md))",
	"internal/app/kv/preset":           "published systems, their figures, our prediction beside them ([table](serving-published.md))",
	"internal/app/kv/replay":           "serving in real time: real bytes through the engine, compute as timed waits",
	"internal/app/kv/report":           "topoctl.kv/v1 as JSON, table, SVG and HTML",
	"internal/app/kv/serve":            "the serving system: instances, queues, batches, memory, moves",
	"internal/app/kv/workload":         "arrivals, lengths and traces",
	"internal/app/observe":             "sources that feed the dashboard: host, counters, agents, a recording, made-up load",
	"internal/app/probe/cause":         "what an error of a measurement is about",
	"internal/app/probe/compare":       "two reports compared",
	"internal/app/probe/fabric":        "the prober of many hosts, through their agents",
	"internal/app/probe/judge":         "verdicts, outliers, what to measure again, [blame](blame.md)",
	"internal/app/probe/lane":          "measures one lane between two engines",
	"internal/app/probe/local":         "the prober of this host: memory, GPUs, ports",
	"internal/app/probe/plan":          "which pairs there are, what each should carry, rounds that share no link beyond its rate",
	"internal/app/probe/plan/plantest": "hosts and fabrics for tests of plans",
	"internal/app/probe/run":           "carries a plan out, round by round, through a prober",
	"internal/app/probe/sampling":      "one measurement at a time: warm-up, samples, when it is enough",
	"internal/app/probe/show":          "a report as table, SVG and HTML",
	"internal/app/probe/stats":         "confidence intervals, percentiles",
	"internal/app/record":              "what the dashboard is fed with, as lines of JSON (topoctl.record/v1)",
	"internal/app/registries":          "opens the registry that a URL names, for the command and the C library",
	"internal/app/rival":               "what Mooncake, NCCL and UCX would choose by their own rules",
	"internal/app/sim":                 "many hosts and a fabric in virtual time, with the scheduler of each host ([simulator](simulator.md))",
	"internal/app/tui":                 "the dashboard's parts: `state` is what is known, `views` draw it, `keys`, `look`, `layout`, `pane`",
	"internal/app/watch":               "what has changed on a host that is looked at again and again ([watch](watch.md))",

	"internal/base/counters":                       "counters of ports, links and GPUs; rates between two looks; which counters mean trouble",
	"internal/base/cpuset":                         "sets of CPUs in every form in which they are written",
	"internal/base/cuda":                           "the CUDA driver API, loaded at run time",
	"internal/base/cuda/cudafake":                  "a CUDA driver for tests, with GPU memory that no processor can touch",
	"internal/base/edit":                           "how far a mistyped word is from a known one, and which is nearest",
	"internal/base/engine/gputest":                 "memory of the fake driver's GPUs, and the transports' tests with it",
	"internal/base/engine/memory":                  "the table of regions with grants and pins, vectors, the copier and its pinned buffers",
	"internal/base/engine/peerdoc":                 "what an engine tells its peers about itself, and the changes to it",
	"internal/base/engine/etcdtest":                "etcd servers for tests",
	"internal/base/engine/registrytest":            "what every registry must do, as tests; a registry in memory for them",
	"internal/base/engine/route":                   "which address a peer is told, and why",
	"internal/base/engine/quota":                   "what peers may have us hold, divided so that none of them has all",
	"internal/base/engine/sched":                   "the pure scheduler: `Step(now, events, out) []Action`",
	"internal/base/engine/session":                 "hello, authentication, calls that survive their connection ([wire protocol](wire.md))",
	"internal/base/engine/stage":                   "device memory through pinned buffers, for transports that need memory of the host",
	"internal/base/engine/transport":               "the contract of a way to move memory",
	"internal/base/engine/transport/fake":          "a transport in memory, for tests",
	"internal/base/engine/transport/faulty":        "a transport that breaks on purpose, for tests",
	"internal/base/engine/transport/rdma":          "READ and WRITE by RDMA devices: ports, queue pairs, registrations",
	"internal/base/engine/transport/shm":           "copies between engines of one host through sealed memfds",
	"internal/base/engine/transport/tcp":           "READ and WRITE over TCP",
	"internal/base/engine/transport/transporttest": "what every transport must do, as tests",
	"internal/base/engine/trust":                   "credentials, TLS connections, and who a peer has proven to be",
	"internal/base/fixturetest":                    "the machines of fixtures, discovered, for tests",
	"internal/base/group":                          "elements of a list that belong together",
	"internal/base/cgroup":                         "what a process's control groups let it have",
	"internal/base/childtest":                      "processes for tests: the test's own program again, and addresses for it",
	"internal/base/golden":                         "golden files and `-update`, for tests",
	"internal/base/hosttree":                       "a host's files with symbolic links: live, captured directory, text archive; the recorder",
	"internal/base/hosttree/machine":               "machine descriptions: YAML expanded to a host tree",
	"internal/base/importtest":                     "the hosts of other tools' published files, for tests",
	"internal/base/jsontext":                       "JSON with an item a line, and JSON of others within limits",
	"internal/base/longtest":                       "how thorough a test is to be",
	"internal/base/maxmin":                         "max-min fair shares of links",
	"internal/base/mooncake":                       "Mooncake's classic protocol over TCP, from both ends ([Mooncake](mooncake.md))",
	"internal/base/pciids":                         "a small table of PCI names",
	"internal/base/pick":                           "policies that give slices of a transfer to lanes, and predictions of how it is shared",
	"internal/base/pcilink":                        "judges a PCIe link by what its two ends say",
	"internal/base/pkgerr":                         "errors that name their package to programs and not to people",
	"internal/base/promtext":                       "Prometheus's text format",
	"internal/base/redact":                         "addresses, serial numbers and names replaced in captures",
	"internal/base/replies":                        "recorded answers of NVML, netlink and verbs",
	"internal/base/ssh":                            "commands on other hosts through the system's ssh",
	"internal/base/schematest":                     "JSON schemas generated from types and held to the published ones, for tests",
	"internal/base/sysfs":                          "our reader of `/sys` and `/proc`",
	"internal/base/text":                           "text for people: made harmless, counted, cut, wrapped, aligned",
	"internal/base/units":                          "the only formatter of rates and sizes",
	"internal/base/verbs":                          "libibverbs, loaded at run time ([ABI](verbs-abi.md))",
	"internal/base/verbs/verbsfake":                "libibverbs for tests",
	"internal/base/verbscheck":                     "tries the RDMA devices of the running host, for `topoctl doctor`",
	"internal/base/xmltree":                        "bounded XML trees, for importers",
}

// table is the import table for people.
func table() string {
	var b strings.Builder
	b.WriteString("| room | holds | may import of ours |\n|---|---|---|\n")
	for _, floor := range []string{"", "internal/app/", "internal/base/"} {
		var names []string
		for _, r := range rules {
			if floor != "" && strings.HasPrefix(r.room, floor) || floor == "" && !strings.HasPrefix(r.room, "internal/") {
				names = append(names, r.room)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			ours := slices.Clone(ruleFor(name).ours)
			for i, o := range ours {
				ours[i] = "`" + strings.TrimPrefix(o, "internal/") + "`"
				if o == "..." {
					ours[i] = "everything"
				}
			}
			if name == "." {
				name = "topoctl"
			}
			b.WriteString("| `" + name + "` | " + rooms[name] + " | " + strings.Join(ours, ", ") + " |\n")
		}
	}
	return b.String()
}

// docs/ARCHITECTURE.md has the table, and every room says what it holds.
func TestArchitecture(t *testing.T) {
	for _, r := range rules {
		name := r.room
		if name == "." {
			name = "topoctl"
		}
		if rooms[name] == "" {
			t.Errorf("%s: say in rooms what it holds", name)
		}
	}
	for name := range rooms {
		room := name
		if name == "topoctl" {
			room = "."
		}
		if !slices.ContainsFunc(rules, func(r rule) bool { return r.room == room }) {
			t.Errorf("%s: there is no such room", name)
		}
	}
	const file, begin, end = "../docs/ARCHITECTURE.md", "<!-- rooms -->\n", "<!-- /rooms -->\n"
	data, err := os.ReadFile(filepath.FromSlash(file))
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s: want %q and %q", file, begin, end)
	}
	golden.Check(t, file, before+begin+table()+end+after)
}
