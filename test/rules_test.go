// Package test holds the rules that no compiler checks: who may
// import whom, and that the module can be packed and fetched.
package test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const modulePath = "github.com/topoctl/topoctl"

// rule says what the packages of one room (and below) may import. The most
// specific room counts. Test files are free.
type rule struct {
	room string   // below the module, "" is the module itself
	ours []string // our own packages; a trailing "/..." takes what is below
	// ban lists packages that it must not import, with the reason.
	ban map[string]string
}

var noOS = map[string]string{
	"os": "the model reads nothing: only read and act touch the OS", "net": "the model has no network",
	"syscall": "the model reads nothing", "os/exec": "the model runs nothing", "net/http": "the model has no network",
	"sync": "the model shares nothing: .ci/run leaves it out of race detection", "sync/atomic": "the model shares nothing",
}

// pureCore is for code that is stepped: no clock, no lock, no goroutine's tools.
var pureCore = map[string]string{
	"os": "the core acts on nothing", "net": "the core acts on nothing", "syscall": "the core acts on nothing",
	"sync": "the caller of Step holds the lock", "sync/atomic": "the caller of Step holds the lock",
	"time": "time is a number that comes in", "context": "nothing in the core waits",
}

// everywhere are the small rooms that all others may use: text, numbers, units and shares.
var everywhere = []string{
	"internal/base/text", "internal/base/units", "internal/base/edit",
	"internal/base/cpuset", "internal/base/jsontext", "internal/base/promtext", "internal/base/maxmin", "internal/base/pkgerr",
	"internal/base/group",
}

var rules = []rule{
	{room: "internal/base/text", ban: noOS},
	{room: "internal/base/cpuset", ban: noOS},
	{room: "internal/base/jsontext", ban: noOS},
	{room: "internal/base/promtext", ban: noOS},
	{room: "internal/base/maxmin", ban: noOS},
	{room: "internal/base/pkgerr", ban: noOS},
	{room: "internal/base/group", ban: noOS},
	{room: "internal/base/cgroup", ban: noOS},
	{room: "internal/base/golden"},
	{room: "internal/base/longtest"},
	{room: "internal/base/childtest"},
	{room: "internal/base/importtest", ours: []string{"discover/topo/...", "internal/base/fixturetest"}},
	{room: "internal/base/fixturetest", ours: []string{"discover", "discover/topo", "fixtures"}},
	{room: "discover/topo", ours: nil, ban: noOS},
	{room: "internal/base/pcilink", ours: []string{"discover/topo"}, ban: noOS},
	{room: "internal/base/replies", ours: []string{"discover/topo"}, ban: noOS},
	{room: "internal/base/redact", ours: []string{"discover/topo", "internal/base/replies"}},
	{room: "internal/base/xmltree", ban: noOS},
	{room: "discover/topo/ncclxml", ours: []string{"discover/topo", "internal/base/xmltree"}, ban: noOS},
	{room: "discover/topo/hwlocxml", ours: []string{"discover/topo", "internal/base/xmltree"}, ban: noOS},
	{room: "discover/topo/nvsmi", ours: []string{"discover/topo"}, ban: noOS},
	{room: "internal/base/amdsmi", ours: []string{"discover/topo", "internal/base/xgmi"}, ban: noOS},
	{room: "internal/base/xgmi", ours: []string{"discover/topo"}, ban: noOS},
	{room: "internal/base/nettext", ours: []string{"discover/topo"}, ban: noOS},
	{room: "internal/base/ibnet", ban: noOS},
	{room: "internal/base/lldp", ours: []string{"discover/topo"}, ban: noOS},
	{room: "internal/base/lspci", ours: []string{"discover/topo", "internal/base/pciids"}, ban: noOS},
	{room: "internal/app/hostview", ours: []string{"internal/base/pcilink", "discover/topo"}, ban: noOS},
	{room: "internal/app/draw", ours: []string{"discover/topo", "internal/app/hostview"}, ban: noOS},
	{room: "internal/app/diagram", ours: []string{"discover/topo", "internal/app/hostview"}, ban: noOS},
	{room: "internal/base/pick", ours: []string{"discover/topo"}, ban: noOS},
	{room: "pathsel", ours: []string{"discover/topo", "internal/base/pick"}, ban: noOS},
	{room: "internal/app/rival", ours: []string{"discover/topo", "pathsel"}, ban: noOS},
	{room: "pathsel/doctor", ours: []string{"internal/base/pcilink", "internal/base/replies", "discover/topo", "discover/topo/ncclxml", "pathsel"}, ban: noOS},
	{room: "internal/base/realid", ours: []string{"discover/topo"}, ban: noOS},
	{room: "internal/base/libvirtxml", ours: []string{"discover/topo", "internal/base/xmltree"}, ban: noOS},
	{room: "internal/app/remap", ours: []string{"discover/topo", "internal/base/realid", "internal/base/libvirtxml"}, ban: noOS},
	{room: "internal/app/diff", ours: []string{"discover/topo", "internal/base/realid", "pathsel"}, ban: noOS},
	{room: "internal/app/fleet/sources", ours: []string{"discover/topo", "internal/app/fleet", "internal/base/ibnet", "internal/base/lldp", "pathsel", "probe"}, ban: noOS},
	{room: "internal/app/fleet/ask"},
	{room: "internal/app/fleet/dra", ours: []string{"discover/topo", "internal/app/fleet"}, ban: noOS},
	{room: "internal/app/fleet/export", ours: []string{"discover/topo", "internal/app/fleet", "internal/app/fleet/dra", "internal/base/ibnet", "pathsel", "pathsel/export"}, ban: noOS},
	{room: "internal/app/dranet", ours: []string{"discover/topo", "internal/app/fleet", "internal/app/fleet/dra"}},
	{room: "internal/app/fleet", ours: []string{"discover/topo", "pathsel", "pathsel/doctor", "internal/app/diff"}, ban: noOS},
	{room: "internal/app/fleet/collect", ours: []string{"discover/topo", "engine", "engine/registry", "internal/app/fleet", "internal/app/observe", "internal/base/ssh"}},
	{room: "internal/app/fleet/show", ours: []string{"discover/topo", "internal/app/fleet", "pathsel", "pathsel/doctor"}, ban: noOS},
	{room: "internal/app/explain", ours: []string{"internal/base/pcilink", "discover/topo", "pathsel"}, ban: noOS},
	{room: "pathsel/export", ours: []string{"discover/topo", "pathsel"}, ban: noOS},
	{room: "internal/base/units"},
	{room: "internal/base/cuda"},
	{room: "internal/base/cuda/cudafake", ours: []string{"internal/base/cuda"}},
	{room: "internal/base/engine/gputest", ours: []string{"engine/memory", "engine/memory/cuda", "internal/base/cuda/cudafake", "internal/base/engine/memory", "internal/base/engine/transport/transporttest", "internal/base/longtest"}},
	{room: "internal/base/verbs"},
	{room: "internal/base/verbs/verbsfake", ours: []string{"internal/base/verbs"}},
	{room: "internal/base/edit"},
	{room: "internal/base/ssh"},
	{room: "internal/base/schematest", ours: []string{"discover/topo", "internal/base/golden"}},
	{room: "internal/base/hosttree"},
	{room: "internal/base/hosttree/machine", ours: []string{"internal/base/replies", "internal/base/hosttree", "discover/topo"}},
	{room: "discover", ours: []string{"internal/base/replies", "internal/base/redact", "discover/topo", "internal/base/counters", "internal/base/hosttree", "internal/base/sysfs", "internal/base/pciids"}},
	{room: "internal/base/pciids"},
	{room: "internal/base/sysfs", ours: []string{"discover/topo", "internal/base/counters", "internal/base/hosttree", "internal/base/xgmi"}},
	{room: "discover/nvml", ours: []string{"internal/base/replies", "discover/topo", "internal/base/counters"}},
	{room: "internal/base/verbscheck", ours: []string{"internal/base/replies", "discover/topo", "internal/base/verbs"}},
	{room: "internal/base/counters", ours: []string{"discover/topo"}, ban: noOS},
	{room: "internal/app/record", ours: []string{"discover/topo", "internal/base/counters", "engine", "probe"}, ban: noOS},
	{room: "internal/app/observe", ours: []string{"discover/topo", "internal/base/counters", "discover", "internal/app/record", "probe"}},
	{room: "internal/base/enginelog", ban: noOS},
	{room: "internal/base/owners"},
	{room: "internal/app/audit", ours: []string{"discover/topo", "internal/base/counters", "internal/base/enginelog", "internal/base/owners", "pathsel"}, ban: noOS},
	{room: "internal/app/watch", ours: []string{"internal/base/pcilink", "discover/topo", "internal/base/counters", "pathsel", "pathsel/doctor", "internal/app/diff"}, ban: noOS},
	{room: "tui", ours: []string{"engine", "discover/topo", "internal/base/counters", "internal/app/draw", "pathsel", "pathsel/doctor", "internal/app/explain", "internal/app/watch", "internal/app/diff", "internal/app/tui/...", "probe", "internal/app/probe/show", "internal/app/record"},
		ban: map[string]string{"os": "the dashboard draws: its feed touches the host", "net": "the feed does", "net/http": "the feed does", "os/exec": "it runs nothing"}},
	{room: "internal/app/tui", ours: []string{"internal/app/audit", "engine", "discover/topo", "internal/base/counters", "internal/app/draw", "pathsel", "pathsel/doctor", "internal/app/explain", "internal/app/watch", "internal/app/diff", "internal/app/tui/...", "probe", "internal/app/probe/show", "internal/app/record"}, ban: noOS},
	{room: "fixtures", ours: []string{"discover/topo", "internal/base/hosttree", "internal/base/hosttree/machine"}},
	{room: "engine/enginetest", ours: []string{"discover/topo", "engine", "internal/base/engine/...", "internal/base/verbs"}},
	{room: "engine/memory", ours: []string{"internal/base/engine/memory"}},
	{room: "internal/base/engine/memory", ours: []string{"internal/base/cgroup"}},
	{room: "engine/memory/cuda", ours: []string{"discover/topo", "engine/memory", "internal/base/engine/memory", "internal/base/cuda"}},
	{room: "internal/base/engine/sched", ours: []string{"discover/topo", "internal/base/pick"}, ban: pureCore},
	{room: "internal/base/engine/quota"},
	{room: "internal/base/engine/transport", ours: []string{"discover/topo", "internal/base/engine/memory", "internal/base/engine/quota", "internal/base/engine/trust"}},
	{room: "internal/base/engine/transport/fake", ours: []string{"discover/topo", "internal/base/engine/memory", "internal/base/engine/transport"}},
	{room: "internal/base/engine/transport/faulty", ours: []string{"discover/topo", "internal/base/engine/memory", "internal/base/engine/transport"}},
	{room: "internal/base/engine/transport/transporttest", ours: []string{"discover/topo", "internal/base/engine/memory", "internal/base/engine/transport", "internal/base/longtest"}},
	{room: "internal/base/engine/transport/tcp", ours: []string{"discover/topo", "internal/base/engine/memory", "internal/base/engine/quota", "internal/base/engine/transport", "internal/base/engine/session", "internal/base/engine/trust", "internal/base/engine/stage"}},
	{room: "internal/base/engine/transport/shm", ours: []string{"internal/base/cpuset", "discover/topo", "internal/base/engine/memory", "internal/base/engine/quota", "internal/base/engine/transport", "internal/base/engine/stage"}},
	{room: "engine/transport/rdma", ours: []string{"engine", "internal/base/engine/transport", "internal/base/engine/transport/rdma"}},
	{room: "internal/base/engine/transport/rdma", ours: []string{"discover/topo", "internal/base/engine/memory", "internal/base/engine/transport", "internal/base/verbs"}},
	{room: "engine/registry", ours: []string{"internal/base/engine/peerdoc"}},
	{room: "engine/registry/etcd", ours: []string{"engine/registry", "internal/base/engine/peerdoc"}},
	{room: "internal/base/engine/etcdtest"},
	{room: "internal/app/registries", ours: []string{"engine/registry", "engine/registry/etcd"}},
	{room: "internal/base/engine/peerdoc", ours: []string{"discover/topo", "engine/memory", "internal/base/engine/transport"}},
	{room: "internal/base/engine/session", ours: []string{"internal/base/engine/quota", "internal/base/engine/transport", "internal/base/engine/trust"}},
	{room: "internal/base/engine/trust"},
	{room: "internal/base/engine/stage", ours: []string{"internal/base/engine/memory", "internal/base/engine/transport"}},
	{room: "internal/base/engine/route", ours: []string{"discover/topo", "pathsel", "internal/base/engine/transport"}},
	{room: "engine", ours: []string{"discover/topo", "pathsel", "engine/...", "internal/base/engine/...", "internal/base/pick"}},
	{room: ".", ours: []string{"discover", "discover/nvml", "discover/topo", "engine", "engine/memory/cuda", "engine/transport/rdma"}},
	{room: "internal/app/agent", ours: []string{"engine/...", "internal/base/engine/...", "engine", "discover/topo", "discover", "pathsel", "pathsel/export", "internal/app/probe/fabric", "internal/app/grants"}},
	{room: "internal/app/grants", ours: []string{"engine", "engine/memory", "internal/app/probe/fabric"}},
	{room: "internal/app/bind", ours: []string{".", "discover/topo", "pathsel", "engine", "engine/memory", "engine/memory/cuda", "engine/registry", "engine/transport/rdma", "internal/app/registries", "internal/base/mooncake", "internal/app/agent"}},
	{room: "internal/app/bench", ours: []string{"engine/...", "engine", "discover/topo", "pathsel", "internal/base/pick"}},
	{room: "examples", ours: []string{".", "engine", "engine/memory"}},
	{room: "probe", ours: []string{"discover/topo", "pathsel"}, ban: noOS},
	{room: "internal/app/probe/plan", ours: []string{"discover/topo", "pathsel", "probe"}, ban: noOS},
	{room: "internal/app/probe/cause", ours: []string{"probe"}, ban: noOS},
	{room: "internal/app/probe/plan/plantest", ours: []string{"discover/topo", "pathsel", "internal/app/probe/plan"}},
	{room: "internal/app/probe/stats", ours: []string{"probe"}, ban: noOS},
	{room: "internal/app/probe/judge", ours: []string{"discover/topo", "pathsel", "probe", "internal/app/probe/stats", "internal/app/probe/cause"}, ban: noOS},
	{room: "internal/app/probe/compare", ours: []string{"discover/topo", "probe"}, ban: noOS},
	{room: "internal/app/probe/show", ours: []string{"discover/topo", "pathsel", "probe", "internal/app/probe/compare", "internal/app/probe/judge"}, ban: noOS},
	{room: "internal/app/probe/run", ours: []string{"discover/topo", "pathsel", "probe", "internal/app/probe/plan", "internal/app/probe/stats", "internal/app/probe/judge", "internal/app/probe/cause"}},
	{room: "internal/app/probe/sampling", ours: []string{"probe", "internal/app/probe/stats"}},
	{room: "internal/app/probe/lane", ours: []string{"discover/topo", "pathsel", "probe", "internal/app/probe/stats", "internal/app/probe/sampling", "engine", "engine/memory", "internal/app/probe/cause"}},
	{room: "internal/app/probe/local", ours: []string{"discover/topo", "pathsel", "probe", "internal/app/probe/stats", "internal/app/probe/lane", "internal/app/probe/sampling", "discover", "engine", "engine/memory", "internal/base/cuda", "internal/base/cgroup"}},
	{room: "internal/app/probe/fabric", ours: []string{"discover/topo", "pathsel", "probe", "internal/app/probe/stats", "internal/app/probe/lane", "discover", "engine", "engine/memory", "engine/registry", "internal/app/probe/cause", "internal/base/ssh"}},
	{room: "internal/app/sim", ours: []string{"discover/topo", "pathsel", "internal/base/engine/sched", "internal/base/pick"}, ban: noOS},
	{room: "internal/app/kv", ban: noOS},
	{room: "internal/app/kv/workload", ours: []string{"internal/app/kv"}, ban: noOS},
	{room: "internal/app/kv/layout", ban: noOS},
	{room: "internal/app/kv/kvtest", ours: []string{"internal/app/kv/compute"}},
	{room: "internal/app/kv/metrics", ours: []string{"internal/app/kv"}, ban: noOS},
	{room: "internal/app/kv/compute", ours: []string{"internal/app/kv/layout"}, ban: noOS},
	{room: "internal/app/kv/serve", ours: []string{"internal/app/kv", "internal/app/kv/layout", "internal/app/kv/compute"}, ban: noOS},
	{room: "internal/app/kv/report", ours: []string{"internal/app/kv/compute", "internal/app/kv/metrics", "discover/topo", "internal/app/draw"}, ban: noOS},
	{room: "internal/app/kv/predict", ours: []string{"internal/app/kv", "internal/app/kv/...", "internal/app/sim", "discover/topo", "pathsel", "internal/base/engine/sched", "internal/base/pick"}, ban: noOS},
	{room: "internal/app/kv/preset", ours: []string{"internal/app/kv", "internal/app/kv/...", "internal/app/sim", "discover/topo", "pathsel"}, ban: noOS},
	{room: "internal/app/kv/replay", ours: []string{"internal/app/kv", "internal/app/kv/...", "engine", "engine/memory"}},
	{room: "internal/base/engine/registrytest", ours: []string{"engine/registry", "internal/base/engine/peerdoc"}},
	{room: "internal/base/mooncake"},
	{room: "internal/app/cli", ours: []string{"..."}},
	{room: "cmd/topoctl", ours: []string{"..."}},
	{room: "cmd/libtopoctl", ours: []string{"internal/app/bind", "internal/app/cli/build"}},
	{room: "test", ours: []string{"..."}},
}

// onlyIn bans libraries everywhere but in some rooms.
var onlyIn = []struct {
	library string
	rooms   []string
	why     string
}{
	{"github.com/spf13/", []string{"cmd/topoctl", "internal/app/cli"}, "only the command line knows about flags"},
	{"charm.land/", []string{"cmd/topoctl", "internal/app/cli", "tui", "internal/app/tui"}, "only the dashboard draws"},
	{"github.com/NVIDIA/go-nvml", []string{"discover/nvml"}, "NVML is a leaf: an import decides whether it is in the binary"},
	{"github.com/jaypipes/", []string{"discover", "internal/base/pciids"}, "one room owns each library"},
	{"github.com/Mellanox/rdmamap", []string{"discover"}, "one room owns each library"},
	{"github.com/vishvananda/netlink", []string{"discover", "internal/base/owners"}, "two rooms own it: what there is, and who uses it"},
	{"github.com/clipperhouse/", []string{"internal/base/text"}, "one room owns each library"},
	{"go.etcd.io/", []string{"engine/registry/etcd", "internal/base/engine/etcdtest"}, "one room owns each library"},
	{"google.golang.org/", []string{"engine/registry/etcd", "internal/app/registries"}, "only etcd's client speaks gRPC"},
	{"go.uber.org/", []string{"engine/registry/etcd", "internal/base/engine/etcdtest"}, "only etcd's client logs by it"},
	{modulePath + "/engine/registry/etcd", []string{"engine/registry/etcd", "internal/app/registries"}, "a leaf that users pass in: an import decides whether etcd's client is in the binary"},
	{modulePath + "/internal/base/engine/etcdtest", []string{"internal/base/engine/etcdtest"}, "tests only"},
	{"testing", []string{"internal/app/probe/plan/plantest", "internal/app/tui/viewtest", "internal/base/longtest", "internal/base/childtest", "internal/base/mooncake/mooncaketest", "internal/base/fixturetest", "internal/base/importtest", "internal/app/cli/clitest", "internal/base/golden", "internal/base/schematest", "internal/base/engine/etcdtest", "internal/base/engine/gputest", "internal/base/engine/registrytest", "internal/base/engine/transport/transporttest", "internal/base/engine/session/sessiontest", "test/vmlab/guest"}, "tests only"},
	{"github.com/santhosh-tekuri/", []string{"internal/base/schematest"}, "tests only"},
	{modulePath + "/internal/base/schematest", []string{"internal/base/schematest"}, "tests only"},
	{modulePath + "/internal/base/fixturetest", []string{"internal/base/fixturetest", "internal/base/importtest", "internal/app/cli/clitest"}, "tests only"},
	{modulePath + "/internal/base/cuda/cudafake", []string{"internal/base/cuda/cudafake", "internal/base/engine/gputest"}, "tests only"},
	{modulePath + "/engine/memory/cuda", []string{".", "cmd/topoctl", "internal/app/cli", "internal/app/bind", "internal/base/engine/gputest", "test/gpu/gpucheck"}, "a leaf that users pass in: an import decides whether CUDA is in the binary"},
	{modulePath + "/internal/base/engine/transport/rdma", []string{"engine/transport/rdma", "engine/enginetest", "internal/base/engine/transport/rdma"}, "the public package gives it to engines"},
	{modulePath + "/engine/transport/rdma", []string{".", "cmd/topoctl", "internal/app/cli", "internal/app/bind", "engine/transport/rdma"}, "a leaf that users pass in: an import decides whether RDMA is in the binary"},
	{modulePath + "/internal/base/verbs/verbsfake", []string{"internal/base/verbs/verbsfake"}, "tests only"},
	{"unsafe", []string{"cmd/libtopoctl", "discover/nvml", "internal/base/verbs", "internal/base/cuda", "internal/base/engine/memory", "engine/memory/cuda", "internal/base/engine/transport/shm"}, "memory is handled in few rooms"},
}

// below says whether a package is a room or inside it.
func below(pkg, room string) bool {
	return room == "" || pkg == room || strings.HasPrefix(pkg, room+"/")
}

func ruleFor(pkg string) *rule {
	var best *rule
	for i := range rules {
		if below(pkg, rules[i].room) && (best == nil || len(rules[i].room) > len(best.room)) {
			best = &rules[i]
		}
	}
	return best
}

func allowed(r *rule, pkg, imported string) bool {
	if below(imported, pkg) || below(imported, r.room) && ruleFor(imported) == r {
		return true // its own subfolders
	}
	for _, o := range slices.Concat(everywhere, r.ours) {
		if o == "..." || o == imported || strings.HasSuffix(o, "/...") && below(imported, strings.TrimSuffix(o, "/...")) {
			return true
		}
	}
	return false
}

func TestImportTable(t *testing.T) {
	for _, o := range onlyIn {
		if ours, ok := strings.CutPrefix(o.library, modulePath+"/"); ok {
			if _, err := os.Stat(filepath.Join("..", ours)); err != nil {
				t.Errorf("the table names a package that is not there: %v", err)
			}
		}
		for _, room := range o.rooms {
			if _, err := os.Stat(filepath.Join("..", room)); err != nil {
				t.Errorf("%s: the table names a room that is not there: %v", o.library, err)
			}
		}
	}
	checked := 0
	walkGo(t, func(pkg, file, imported string) {
		checked++
		r := ruleFor(pkg)
		if r == nil {
			t.Errorf("%s: the package has no rule: add its room to the table", file)
			return
		}
		if why, banned := r.ban[imported]; banned {
			t.Errorf("%s imports %s: %s", file, imported, why)
		}
		for _, o := range onlyIn {
			if imported != o.library && !strings.HasPrefix(imported, o.library) {
				continue
			}
			ok := false
			for _, room := range o.rooms {
				ok = ok || below(pkg, room)
			}
			if !ok {
				t.Errorf("%s imports %s, which belongs in %s only: %s", file, imported, strings.Join(o.rooms, ", "), o.why)
			}
		}
		ours, ok := strings.CutPrefix(imported, modulePath+"/")
		if imported == modulePath {
			ours, ok = ".", true
		}
		if ok && !allowed(r, pkg, ours) {
			t.Errorf("%s: %s may not import %s", file, pkg, ours)
		}
	})
	if checked < 50 {
		t.Errorf("looked at %d imports only: is the root right?", checked)
	}
}

// walkGo calls visit for each import of each Go file that is no test.
func walkGo(t *testing.T, visit func(pkg, file, imported string)) {
	t.Helper()
	root := ".."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != root) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, i := range file.Imports {
			visit(filepath.ToSlash(rel), path, strings.Trim(i.Path.Value, `"`))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The module can be zipped, so that go install can fetch it: no file name that
// another system refuses, no symbolic link, no replace directive. The check of Kubernetes' manifests, a module
// of its own for what it depends on, is left out.
func TestModuleZips(t *testing.T) {
	checked, err := zip.CheckDir("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range checked.Omitted {
		built := strings.HasPrefix(o.Path, filepath.Join("..", "bin")+string(filepath.Separator)) // git ignores it
		own := o.Path == filepath.Join("..", "test", "kubernetes")
		if filepath.Base(o.Path) != ".git" && !own && !built {
			t.Errorf("left out of the module: %s: %v", o.Path, o.Err)
		}
	}
	if err := module.CheckPath(modulePath); err != nil {
		t.Error(err)
	}
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mod), "\nreplace ") {
		t.Error("go.mod has a replace directive: go install refuses such modules")
	}
}
