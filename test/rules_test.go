// Package test holds the rules of the house that no compiler checks: who may
// import whom, and that the module can be packed and fetched.
package test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
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
	"sync": "whoever steps the core holds the lock", "sync/atomic": "whoever steps the core holds the lock",
	"time": "time is a number that comes in", "context": "nothing in the core waits",
}

var rules = []rule{
	{room: "internal/base/cpuset", ban: noOS},
	{room: "internal/base/jsontext", ban: noOS},
	{room: "internal/base/promtext", ban: noOS},
	{room: "discover/topo", ours: nil, ban: noOS},
	{room: "discover/topo/internal/bitmap", ban: noOS},
	{room: "discover/topo/internal/xmltree", ban: noOS},
	{room: "discover/topo/ncclxml", ours: []string{"discover/topo", "discover/topo/internal/..."}, ban: noOS},
	{room: "discover/topo/hwlocxml", ours: []string{"discover/topo", "discover/topo/internal/..."}, ban: noOS},
	{room: "discover/topo/nvsmi", ours: []string{"discover/topo"}, ban: noOS},
	{room: "discover/topo/draw", ours: []string{"discover/topo", "internal/units"}, ban: noOS},
	{room: "discover/topo/diagram", ours: []string{"discover/topo", "internal/units"}, ban: noOS},
	{room: "pathsel", ours: []string{"discover/topo", "internal/units", "internal/edit"}, ban: noOS},
	{room: "pathsel/rival", ours: []string{"discover/topo", "pathsel", "internal/units"}, ban: noOS},
	{room: "pathsel/doctor", ours: []string{"discover/topo", "pathsel", "internal/units"}, ban: noOS},
	{room: "pathsel/diff", ours: []string{"discover/topo", "pathsel", "internal/units"}, ban: noOS},
	{room: "pathsel/explain", ours: []string{"discover/topo", "pathsel", "internal/units"}, ban: noOS},
	{room: "pathsel/export", ours: []string{"discover/topo", "pathsel"}, ban: noOS},
	{room: "internal/base/text", ban: noOS},
	{room: "internal/base/golden"},
	{room: "internal/units"},
	{room: "internal/cuda"},
	{room: "internal/cuda/cudafake", ours: []string{"internal/cuda"}},
	{room: "internal/verbs"},
	{room: "internal/verbs/verbsfake", ours: []string{"internal/verbs"}},
	{room: "internal/edit"},
	{room: "internal/schematest", ours: []string{"discover/topo"}},
	{room: "internal/hosttree"},
	{room: "internal/hosttree/machine", ours: []string{"internal/hosttree", "discover/topo"}},
	{room: "discover", ours: []string{"discover/topo", "discover/counters", "internal/hosttree", "discover/internal/..."}},
	{room: "discover/internal/pciids"},
	{room: "discover/internal/sysfs", ours: []string{"discover/topo", "discover/counters", "internal/hosttree"}},
	{room: "discover/nvml", ours: []string{"discover/topo", "discover/counters"}},
	{room: "discover/verbs", ours: []string{"discover/topo", "internal/verbs"}},
	{room: "discover/counters", ours: []string{"discover/topo"}, ban: noOS},
	{room: "internal/record", ours: []string{"discover/topo", "discover/counters", "probe"}, ban: noOS},
	{room: "internal/observe", ours: []string{"discover/topo", "discover/counters", "discover", "internal/record", "probe"}},
	{room: "pathsel/watch", ours: []string{"discover/topo", "discover/counters", "pathsel", "pathsel/doctor", "pathsel/diff", "internal/units"}, ban: noOS},
	{room: "tui", ours: []string{"discover/topo", "discover/counters", "discover/topo/draw", "pathsel", "pathsel/...", "probe", "probe/show", "internal/record", "internal/units"},
		ban: map[string]string{"os": "the dashboard draws: its feed touches the host", "net": "the feed does", "net/http": "the feed does", "os/exec": "it runs nothing"}},
	{room: "tui/internal", ours: []string{"discover/topo", "discover/counters", "discover/topo/draw", "pathsel", "pathsel/...", "probe", "probe/show", "internal/record", "internal/units"}, ban: noOS},
	{room: "fixtures", ours: []string{"discover/topo", "internal/edit", "internal/hosttree", "internal/hosttree/machine"}},
	{room: "engine/memory", ours: []string{"discover/topo"}},
	{room: "engine/memory/cuda", ours: []string{"discover/topo", "engine/memory", "internal/cuda"}},
	{room: "engine/sched", ours: []string{"discover/topo", "pathsel"}, ban: pureCore},
	{room: "engine/transport", ours: []string{"discover/topo", "engine/memory"}},
	{room: "engine/transport/fake", ours: []string{"discover/topo", "engine/memory", "engine/transport"}},
	{room: "engine/transport/faulty", ours: []string{"discover/topo", "engine/memory", "engine/transport"}},
	{room: "engine/transport/transporttest", ours: []string{"discover/topo", "engine/memory", "engine/transport"}},
	{room: "engine/transport/tcp", ours: []string{"discover/topo", "engine/memory", "engine/transport", "engine/internal/session", "engine/internal/stage"}},
	{room: "engine/transport/shm", ours: []string{"discover/topo", "engine/memory", "engine/transport", "engine/internal/stage"}},
	{room: "engine/transport/rdma", ours: []string{"discover/topo", "engine/memory", "engine/transport", "internal/verbs"}},
	{room: "engine/registry", ours: []string{"discover/topo", "engine/memory", "engine/transport"}},
	{room: "engine/internal/session", ours: []string{"engine/transport"}},
	{room: "engine/internal/stage", ours: []string{"engine/memory", "engine/transport"}},
	{room: "engine/internal/route", ours: []string{"discover/topo", "pathsel", "engine/transport"}},
	{room: "engine", ours: []string{"discover/topo", "pathsel", "internal/units", "engine/..."}},
	{room: "internal/agent", ours: []string{"engine/...", "engine", "discover/topo", "discover", "pathsel", "pathsel/export", "internal/units", "probe/fabric"}},
	{room: "internal/bench", ours: []string{"engine/...", "engine", "discover/topo", "pathsel", "internal/units"}},
	{room: "examples", ours: []string{"engine", "engine/memory"}},
	{room: "probe", ours: []string{"discover/topo", "pathsel"}, ban: noOS},
	{room: "probe/plan", ours: []string{"discover/topo", "pathsel", "probe", "internal/units"}, ban: noOS},
	{room: "probe/stats", ours: []string{"probe"}, ban: noOS},
	{room: "probe/judge", ours: []string{"discover/topo", "pathsel", "probe", "probe/stats", "internal/units"}, ban: noOS},
	{room: "probe/show", ours: []string{"discover/topo", "pathsel", "probe", "internal/units"}, ban: noOS},
	{room: "probe/run", ours: []string{"discover/topo", "pathsel", "probe", "probe/plan", "probe/stats", "probe/judge"}},
	{room: "probe/internal/sampling", ours: []string{"probe", "probe/stats"}},
	{room: "probe/lane", ours: []string{"discover/topo", "probe", "probe/stats", "probe/internal/sampling", "engine", "engine/memory", "engine/transport"}},
	{room: "probe/local", ours: []string{"discover/topo", "pathsel", "probe", "probe/stats", "probe/lane", "probe/internal/sampling", "discover", "engine", "engine/memory", "engine/transport", "internal/cuda"}},
	{room: "probe/fabric", ours: []string{"discover/topo", "pathsel", "probe", "probe/stats", "probe/lane", "discover", "engine", "engine/memory", "engine/transport"}},
	{room: "internal/sim", ours: []string{"discover/topo", "pathsel", "engine/sched", "internal/units"}, ban: noOS},
	{room: "internal/kv", ban: noOS},
	{room: "internal/kv/workload", ours: []string{"internal/kv"}, ban: noOS},
	{room: "internal/kv/layout", ours: []string{"internal/edit"}, ban: noOS},
	{room: "internal/kv/metrics", ours: []string{"internal/kv"}, ban: noOS},
	{room: "internal/kv/compute", ours: []string{"internal/kv/layout"}, ban: noOS},
	{room: "internal/kv/serve", ours: []string{"internal/kv", "internal/kv/layout", "internal/kv/compute"}, ban: noOS},
	{room: "internal/kv/report", ours: []string{"internal/kv/compute", "internal/kv/metrics", "discover/topo", "discover/topo/draw", "internal/units"}, ban: noOS},
	{room: "internal/kv/predict", ours: []string{"internal/kv", "internal/kv/...", "internal/sim", "discover/topo", "pathsel", "engine/sched"}, ban: noOS},
	{room: "internal/kv/preset", ours: []string{"internal/kv", "internal/kv/...", "internal/sim", "discover/topo", "pathsel"}, ban: noOS},
	{room: "internal/kv/replay", ours: []string{"internal/kv", "internal/kv/...", "engine", "engine/memory"}},
	{room: "cmd/topoctl", ours: []string{"..."}},
	{room: "test", ours: []string{"..."}},
}

// onlyIn bans libraries everywhere but in some rooms.
var onlyIn = []struct {
	library string
	rooms   []string
	why     string
}{
	{"github.com/spf13/", []string{"cmd/topoctl"}, "only the command line knows about flags"},
	{"charm.land/", []string{"cmd/topoctl", "tui"}, "only the dashboard draws"},
	{"github.com/NVIDIA/go-nvml", []string{"discover/nvml"}, "NVML is a leaf: an import decides whether it is in the binary"},
	{"github.com/jaypipes/", []string{"discover"}, "one room owns each library"},
	{"github.com/Mellanox/rdmamap", []string{"discover"}, "one room owns each library"},
	{"github.com/vishvananda/netlink", []string{"discover"}, "one room owns each library"},
	{"github.com/clipperhouse/", []string{"internal/base/text"}, "one room owns each library"},
	{"testing", []string{"internal/base/golden", "internal/schematest", "engine/registry/registrytest", "engine/transport/transporttest", "engine/internal/session/sessiontest"}, "tests only"},
	{"github.com/santhosh-tekuri/", []string{"internal/schematest"}, "tests only"},
	{modulePath + "/internal/base/golden", []string{"internal/base/golden", "internal/schematest"}, "tests only"},
	{modulePath + "/internal/schematest", []string{"internal/schematest"}, "tests only"},
	{modulePath + "/internal/cuda/cudafake", []string{"internal/cuda/cudafake"}, "tests only"},
	{modulePath + "/engine/memory/cuda", []string{"cmd/topoctl"}, "a leaf that users pass in: an import decides whether CUDA is in the binary"},
	{modulePath + "/engine/transport/rdma", []string{"cmd/topoctl", "engine/transport/rdma"}, "a leaf that users pass in: an import decides whether RDMA is in the binary"},
	{modulePath + "/internal/verbs/verbsfake", []string{"internal/verbs/verbsfake"}, "tests only"},
	{"unsafe", []string{"discover/nvml", "internal/dl", "internal/verbs", "internal/cuda", "engine/memory", "engine/transport/shm"}, "memory is handled in few rooms"},
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
	for _, o := range r.ours {
		if o == "..." || o == imported || strings.HasSuffix(o, "/...") && below(imported, strings.TrimSuffix(o, "/...")) {
			return true
		}
	}
	return false
}

func TestImportTable(t *testing.T) {
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
		if ours, ok := strings.CutPrefix(imported, modulePath+"/"); ok && !allowed(r, pkg, ours) {
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
// another system refuses, no symbolic link, no replace directive.
func TestModuleZips(t *testing.T) {
	checked, err := zip.CheckDir("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range checked.Omitted {
		if filepath.Base(o.Path) != ".git" {
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
