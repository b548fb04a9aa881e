// Package test holds the rules that no compiler checks: which code is pure, which rooms stand on which, who may use a
// library, and that the module can be packed and fetched.
package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const modulePath = "github.com/topoctl/topoctl"

// pure are the rooms that parse, model or decide: they touch no operating system, and share nothing, so .ci/run leaves
// them out of race detection. Time comes in as a parameter.
var pure = []string{
	"discover/topo", "discover/formats", "discover/internal/gpulink", "pathsel", "probe",
	"internal/text", "internal/report", "internal/cpuset", "internal/document", "internal/maxmin", "internal/pkgerr", "internal/group",
	"discover/replies", "discover/counters", "internal/redact", "internal/direction", "internal/pick", "internal/sched",
	"internal/picture", "internal/rival", "internal/remap", "internal/compare", "internal/explain", "internal/record",
	"internal/watch", "internal/audit", "internal/fleet", "internal/sim", "internal/kv", "internal/probe/show", "tui/internal",
}

// acting are parts of these rooms that do touch it.
var acting = []string{"internal/audit/owners", "internal/fleet/collect", "internal/fleet/dranet", "internal/kv/replay", "probe/measure", "probe/internal/lane", "probe/internal/local"}

var outside = []string{"os", "os/exec", "net", "net/http", "syscall", "sync", "sync/atomic"}

// stands says what each top-level folder may import of the others. What is below an internal folder the compiler keeps.
var stands = map[string][]string{
	".":        {"discover", "engine"},
	"discover": {"internal", "fixtures"}, // discover/formats: variants of fixtures
	"fixtures": {"discover/topo", "internal"},
	"pathsel":  {"discover/topo", "discover/formats", "discover/replies", "internal"},
	"engine":   {"discover/topo", "pathsel", "internal"},
	"probe":    {"discover/topo", "pathsel", "engine", "internal"},
	"tui":      {"discover", "pathsel", "engine", "probe", "internal"},
	"internal": {".", "discover", "pathsel", "engine", "probe", "fixtures"},
	"examples": {".", "engine"},
	"cmd":      {"..."}, "testkit": {"..."}, "test": {"..."},
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
	{"github.com/vishvananda/netlink", []string{"discover", "internal/audit/owners"}, "two rooms own it: what there is, and who uses it"},
	{"github.com/clipperhouse/", []string{"internal/text"}, "one room owns each library"},
	{"go.etcd.io/", []string{"engine/registry/etcd", "testkit/etcdtest"}, "one room owns each library"},
	{"google.golang.org/", []string{"engine/registry/etcd", "internal/registries"}, "only etcd's client speaks gRPC"},
	{"go.uber.org/", []string{"engine/registry/etcd", "testkit/etcdtest"}, "only etcd's client logs by it"},
	{"github.com/santhosh-tekuri/", []string{"testkit"}, "tests only"},
	{modulePath + "/engine/registry/etcd", []string{"engine/registry/etcd", "internal/registries"}, "a leaf that users pass in: an import decides whether etcd's client is in the binary"},
	{modulePath + "/engine/memory/cuda", []string{".", "cmd/topoctl", "internal/bind", "engine/internal/gputest", "engine/internal/gpucheck"}, "a leaf that users pass in: an import decides whether CUDA is in the binary"},
	{modulePath + "/engine/transport/rdma", []string{".", "cmd/topoctl", "internal/bind"}, "a leaf that users pass in: an import decides whether RDMA is in the binary"},
	{modulePath + "/engine/internal/transport/rdma", []string{"engine/transport/rdma", "engine/enginetest", "engine/internal/transport/rdma"}, "the public package gives it to engines"},
	{"unsafe", []string{"cmd/libtopoctl", "discover/nvml", "internal/verbs", "internal/cuda", "engine/internal/memory", "engine/memory/cuda", "engine/internal/transport/shm"}, "memory is handled in few rooms"},
}

// kits are packages that only tests, and other kits, may import.
var kits = []string{"testkit", "test", "cmd/topoctl/inprocess", "engine/internal/gpucheck", "engine/internal/transport/fake", "engine/internal/transport/faulty", "internal/cuda/cudafake", "internal/verbs/verbsfake"}

func kit(pkg string) bool { return in(kits, pkg) || strings.HasSuffix(pkg, "test") }

// below says whether a package is a room or inside it.
func below(pkg, room string) bool { return pkg == room || strings.HasPrefix(pkg, room+"/") }

func in(rooms []string, pkg string) bool {
	return slices.ContainsFunc(rooms, func(room string) bool { return room == "..." || below(pkg, room) })
}

func TestImports(t *testing.T) {
	rooms := slices.Concat(pure, acting, kits)
	for _, o := range onlyIn {
		rooms = append(rooms, o.rooms...)
	}
	for _, room := range rooms {
		if _, err := os.Stat(filepath.Join("..", room)); err != nil {
			t.Errorf("a room that is not there: %v", err)
		}
	}
	checked := 0
	walkGo(t, func(pkg, file, imported string) {
		checked++
		if in(pure, pkg) && !in(acting, pkg) {
			if slices.Contains(outside, imported) {
				t.Errorf("%s imports %s: what parses, models and decides touches no operating system and shares nothing", file, imported)
			}
			if pkg == "internal/sched" && (imported == "time" || imported == "context") {
				t.Errorf("%s imports %s: time is a number that comes in, and nothing waits", file, imported)
			}
		}
		for _, o := range onlyIn {
			if strings.HasPrefix(imported, o.library) && !in(o.rooms, pkg) {
				t.Errorf("%s imports %s, which belongs in %s only: %s", file, imported, strings.Join(o.rooms, ", "), o.why)
			}
		}
		if imported == "testing" && !kit(pkg) {
			t.Errorf("%s imports testing", file)
		}
		ours, ok := strings.CutPrefix(imported, modulePath+"/")
		if imported == modulePath {
			ours, ok = ".", true
		}
		if !ok {
			return
		}
		if kit(ours) && !kit(pkg) && pkg != "engine/enginetest" {
			t.Errorf("%s imports %s, which is for tests", file, ours)
		}
		from, _, _ := strings.Cut(pkg, "/")
		if to, _, _ := strings.Cut(ours, "/"); from != to && !kit(pkg) && !in(stands[from], ours) {
			t.Errorf("%s: %s stands on %s, not on %s", file, from, strings.Join(stands[from], ", "), ours)
		}
	})
	if checked < 50 {
		t.Errorf("looked at %d imports only: is the root right?", checked)
	}
}

// walkGo calls visit for each import of each Go file that is no test.
func walkGo(t *testing.T, visit func(pkg, file, imported string)) {
	t.Helper()
	eachFile(t, parser.ImportsOnly, func(pkg, path string, file *ast.File) {
		for _, i := range file.Imports {
			visit(pkg, path, strings.Trim(i.Path.Value, `"`))
		}
	})
}

// eachFile calls visit for each Go file that is no test.
func eachFile(t *testing.T, mode parser.Mode, visit func(pkg, path string, file *ast.File)) {
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
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, mode)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(path))
		visit(filepath.ToSlash(rel), path, file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The comment of each package says what it holds: "go list" with it is the list of packages.
func TestPackageComments(t *testing.T) {
	holds := map[string]string{}
	eachFile(t, parser.PackageClauseOnly|parser.ParseComments, func(pkg, _ string, file *ast.File) {
		if holds[pkg] == "" {
			holds[pkg] = file.Doc.Text()
		}
	})
	for _, pkg := range slices.Sorted(maps.Keys(holds)) {
		if holds[pkg] == "" {
			t.Errorf("%s: a package comment says what it holds", pkg)
		}
	}
}

// The module can be zipped, so that go install can fetch it: no file name that
// another system refuses, no symbolic link, no replace directive. Left out are modules of their own: the check of
// Kubernetes' manifests for what it depends on, a program that embeds the engine for what it may not import.
func TestModuleZips(t *testing.T) {
	checked, err := zip.CheckDir("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range checked.Omitted {
		built := strings.HasPrefix(o.Path, filepath.Join("..", "bin")+string(filepath.Separator)) // git ignores it
		own := o.Path == filepath.Join("..", "test", "kubernetes") || o.Path == filepath.Join("..", "test", "embed", "go")
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
