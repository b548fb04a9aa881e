package doctor_test

import (
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/hosttree"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// faulty are machines on which a check has something to find that no fixture has: a fixture and
// patches.
var faulty = map[string]string{
	"both ends narrow":        "base: hgx-h100-8nic\npatches:\n- {change: 0000:18:00.0, at: x8}",
	"the ends disagree":       "base: hgx-h100-8nic\npatches:\n- {set: sys/bus/pci/devices/0000:17:00.0/current_link_width, to: 8}",
	"a slow uplink":           "base: hgx-h100-8nic\npatches:\n- {change: 0000:16:00.0, at: gen3}",
	"a slot too narrow":       "base: hgx-h100-8nic\npatches:\n- {change: 0000:17:01.0, link: gen4x16}",
	"NVLinks missing":         "base: hgx-h100-8nic\npatches:\n- {change: 0000:18:00.0, nvlink: 0}",
	"NVLinks uneven":          "base: hgx-h100-8nic\npatches:\n- {change: 0000:18:00.0, nvlink: 17}",
	"a port switched off":     "base: a10-2nic\npatches:\n- {change: 0000:1a:00.0, state: down}\n- {set: sys/class/net/ens1f0np0/flags, to: 0x1002}",
	"a port without carrier":  "base: a10-2nic\npatches:\n- {change: 0000:1a:00.0, state: down}",
	"no port at all":          "base: a10-2nic\npatches:\n- {change: 0000:1a:00.0, state: down}\n- {change: 0000:9b:00.0, state: down}",
	"no subnet manager":       "base: hgx-h100-8nic\npatches:\n- {set: sys/class/infiniband/mlx5_0/ports/1/state, to: \"2: INIT\"}",
	"no LID":                  "base: hgx-h100-8nic\npatches:\n- {set: sys/class/infiniband/mlx5_0/ports/1/lid, to: 0x0}",
	"MTUs differ":             "base: a10-2nic\npatches:\n- {change: 0000:1a:00.0, mtu: 1500}",
	"a slow rail":             "base: hgx-h100-8nic\npatches:\n- {set: sys/class/infiniband/mlx5_0/ports/1/rate, to: 100 Gb/sec (4X EDR)}",
	"partitions differ":       "base: hgx-h100-8nic\npatches:\n- {set: sys/class/infiniband/mlx5_0/ports/1/pkeys/0, to: 0x7fff}",
	"another layer":           "base: hgx-h100-8nic\npatches:\n- {set: sys/class/infiniband/mlx5_0/ports/1/link_layer, to: Ethernet}",
	"an unknown NUMA node":    "base: hgx-h100-8nic\npatches:\n- {set: sys/bus/pci/devices/0000:18:00.0/numa_node, to: -1}\n- {remove: sys/bus/pci/devices/0000:18:00.0/local_cpulist}",
	"no driver":               "base: hgx-h100-8nic\npatches:\n- {remove: sys/bus/pci/devices/0000:18:00.0/driver}\n- {remove: proc/driver/nvidia}\n- {remove: topoctl/nvml.json}",
	"nouveau":                 "base: a10-2nic\npatches:\n- {link: sys/bus/pci/devices/0000:19:00.0/driver, to: ../../../../bus/pci/drivers/nouveau}\n- {remove: proc/driver/nvidia}\n- {remove: topoctl/nvml.json}",
	"the IOMMU translates":    "base: hgx-h100-8nic\npatches:\n- {set: sys/kernel/iommu_groups/*/type, to: DMA}",
	"no way to GPU memory":    "base: hgx-h100-8nic\npatches:\n- {remove: sys/module/nvidia_peermem}",
	"a leg that is down":      "base: bonds\npatches:\n- {set: sys/class/net/eth0/operstate, to: down}",
	"RDMA without a function": "base: hgx-h100-8nic\npatches:\n- {remove: sys/class/infiniband/mlx5_0/device}",
	"ACS":                     "base: pcie-8gpu-2nic-epyc",
}

// seen is one piece of evidence of a finding: a file or a directory of the tree, or a call whose recorded answers
// are in one.
type seen struct {
	file   string // "" where it is the word of the running host or of the command line
	absent bool   // it is that there is no such file
}

// calls are the files with the recorded answers of what is not a file.
var calls = map[string]string{"nvml": replies.NVMLPath, "RTM_": replies.NetlinkPath, "RDMA_NLDEV": replies.NetlinkPath, "IFLA_": replies.NetlinkPath, "ip addr show": replies.NetlinkPath}

func parseEvidence(e string) seen {
	for prefix, file := range calls {
		if strings.HasPrefix(e, prefix) {
			return seen{file: file}
		}
	}
	name, absent := strings.CutSuffix(e, " does not exist")
	name, _, _ = strings.Cut(name, " = ")
	name, _, _ = strings.Cut(name, " without ")
	name, _, _ = strings.Cut(name, " ") // "/proc/self/limits Max locked memory"
	if !strings.HasPrefix(name, "/") {
		return seen{}
	}
	return seen{file: strings.TrimPrefix(name, "/"), absent: absent}
}

// found lists the real paths of what a name stands for, which may have asterisks.
func found(tb testing.TB, tree hosttree.Tree, name string) (paths []string) {
	tb.Helper()
	names := []string{name}
	if strings.Contains(name, "*") {
		var err error
		if names, err = fs.Glob(tree, name); err != nil {
			tb.Fatal(err)
		}
	}
	for _, n := range names {
		// The file itself where it is a link: what is taken away is the word, not what it points to.
		dir, err := hosttree.RealPath(tree, path.Dir(n))
		if err != nil {
			continue
		}
		n = path.Join(dir, path.Base(n))
		if i, err := fs.Lstat(tree, n); err != nil {
			continue
		} else if i.Mode()&fs.ModeSymlink != 0 && strings.HasPrefix(name, "sys/class/") && strings.Count(name, "/") == 3 {
			paths = append(paths, n) // a device: the link in its class, and where it leads
			if n, err = hosttree.RealPath(tree, n); err != nil {
				continue
			}
		}
		paths = append(paths, n)
	}
	return paths
}

// examined is a machine with what doctor says of it.
type examined struct {
	name   string
	tree   *hosttree.Mem
	report *doctor.Report
}

func memory(tb testing.TB, tree fs.FS) *hosttree.Mem {
	tb.Helper()
	mem, ok := tree.(*hosttree.Mem)
	if !ok {
		tb.Fatalf("%T is no tree in memory", tree)
	}
	return mem
}

func diagnose(tb testing.TB, tree fs.FS) *doctor.Report {
	tb.Helper()
	top, err := discover.Discover(tb.Context(), discover.Options{FS: tree, Origin: "fixture"})
	if err != nil {
		tb.Fatal(err)
	}
	return run(tb, top)
}

// examine looks at all fixtures and faulty machines, once for all tests.
func examine(tb testing.TB) []examined {
	tb.Helper()
	all.Do(func() { allMachines = examineAll(tb) })
	return allMachines
}

var (
	all         sync.Once
	allMachines []examined
)

func examineAll(tb testing.TB) (list []examined) {
	tb.Helper()
	for _, name := range machines() {
		tree, err := fixtures.Open(name)
		if err != nil {
			tb.Fatal(err)
		}
		list = append(list, examined{name, memory(tb, tree), fixture(tb, name)})
	}
	for _, name := range slices.Sorted(maps.Keys(faulty)) {
		tree, err := fixtures.OpenFile([]byte("machine: v\ndescription: a variant\n" + faulty[name] + "\n"))
		if err != nil {
			tb.Fatal(err)
		}
		list = append(list, examined{name, memory(tb, tree), diagnose(tb, tree)})
	}
	return list
}

// without is the tree without some files, or directories with all that is in them.
func (x *examined) without(tb testing.TB, paths []string) *hosttree.Mem {
	tb.Helper()
	out, err := x.tree.Rewrite(func(_ string, data []byte) []byte { return data }, func(name string) bool { return slices.Contains(paths, name) })
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// Each error and warning (not notes) rests on what is there: every file of its evidence exists, and with
// one of them taken away the same check no longer reports it by that file. It says then that it could
// not check one of the devices, or the finding stands on other evidence. Where the evidence is a device
// itself, with all that is in its directory, there is no such device any more and others may have its
// number. Evidence that a file is not there must be true, and is gone with the directory that would
// have it.
func TestFindingsRestOnEvidence(t *testing.T) {
	machines := examine(t)
	type removal struct {
		on    examined
		at    string   // as the evidence names it
		paths []string // what is taken away

		device bool // it is a device, with all that is in its directory
	}
	var removals []removal
	for _, x := range machines {
		known := map[string]bool{}
		for _, f := range x.report.Findings() {
			if f.Severity == doctor.Info {
				continue
			}
			if len(f.Evidence) == 0 {
				t.Errorf("%s: %s: %s: no evidence", x.name, f.Code, f.Text)
			}
			for _, e := range f.Evidence {
				s := parseEvidence(e)
				at := s.file
				if s.absent {
					if len(found(t, x.tree, at)) > 0 {
						t.Errorf("%s: %s: %s: it does", x.name, f.Code, e)
					}
					at = path.Dir(at)
				}
				paths := found(t, x.tree, at)
				if len(paths) == 0 {
					t.Errorf("%s: %s: %q is not in the tree", x.name, f.Code, e)
				}
				if !known[at] {
					known[at] = true
					removals = append(removals, removal{x, at, paths, isDevice(x.tree, at)})
				}
			}
		}
	}
	t.Logf("%d removals on %d machines", len(removals), len(machines))
	for _, r := range longtest.Sample(removals, 12) {
		t.Run(r.on.name+" "+strings.ReplaceAll(r.at, "/", "_"), func(t *testing.T) {
			t.Parallel()
			tree := r.on.without(t, r.paths)
			after := diagnose(t, tree)
			for _, f := range r.on.report.Findings() {
				if f.Severity != doctor.Info && slices.ContainsFunc(f.Evidence, func(e string) bool { return under(r.at, parseEvidence(e)) }) {
					stands(t, &f, after, r.device, r.at)
				}
			}
		})
	}
}

// isDevice says whether a name is a directory, or the link to one by which a device is listed.
func isDevice(tree fs.FS, name string) bool {
	i, err := fs.Stat(tree, name)
	return err == nil && i.IsDir() || path.Dir(name) == "sys/bus/pci/devices"
}

// under says whether a piece of evidence is what was taken away.
func under(at string, s seen) bool { return s.file == at || s.absent && path.Dir(s.file) == at }

// stands checks what became of a finding after one of its pieces of evidence was taken away.
func stands(t *testing.T, f *doctor.Finding, after *doctor.Report, device bool, at string) {
	t.Helper()
	c := after.Checks[slices.IndexFunc(after.Checks, func(c doctor.CheckResult) bool { return c.Code == f.Code })]
	for _, x := range c.Findings {
		if x.Severity != doctor.Info && slices.ContainsFunc(x.Evidence, func(e string) bool { s := parseEvidence(e); return s.file == at && !s.absent }) {
			t.Errorf("%s: %s, still by %s, which is not there: %v", f.Code, x.Text, at, x.Evidence)
		}
	}
	about := func(list []topo.ID) bool {
		return len(list) == 0 || len(f.Subjects) == 0 || slices.ContainsFunc(list, func(id topo.ID) bool { return slices.Contains(f.Subjects, id) })
	}
	stays := slices.ContainsFunc(c.Findings, func(x doctor.Finding) bool { return about(x.Subjects) })
	open := slices.ContainsFunc(c.Missing, func(m doctor.Missing) bool { return about(m.Subjects) })
	if !stays && !open && !device {
		t.Errorf("%s: without %s: %s (%s), want could_not_check of %v", f.Code, at, c.Status, c.Note, f.Subjects)
	}
}

// alike are the numbers in the name of a file by which it differs from those of other devices.
var alike = regexp.MustCompile(`[0-9a-f]{4}:[0-9a-f]{2}(:[0-9a-f]{2}\.[0-9])?|[0-9]+`)

// files are the files and links of a tree by what they tell of each device, without those that list devices.
func (x *examined) files(tb testing.TB) map[string][]string {
	tb.Helper()
	out := map[string][]string{}
	if err := fs.WalkDir(x.tree, ".", func(name string, e fs.DirEntry, err error) error {
		if list := path.Dir(name); err == nil && !e.IsDir() && list != "sys/bus/pci/devices" && path.Dir(list) != "sys/class" {
			sort := alike.ReplaceAllString(name, "N")
			out[sort] = append(out[sort], name)
		}
		return err
	}); err != nil {
		tb.Fatal(err)
	}
	return out
}

// statementFiles are those whose absence says something itself: without the first three a function is another one,
// without the last the kernel has no IOMMU.
var statementFiles = []string{"class", "vendor", "device", "iommu_group"}

// Without the files of one sort, no error or warning turns into silence, unless the devices are gone that it was about.
func TestFindingsOutliveFiles(t *testing.T) {
	type removal struct {
		on    examined
		sort  string
		paths []string
	}
	var removals []removal
	for _, x := range examine(t) {
		if !x.report.Worst().AtLeast(doctor.Warning) {
			continue
		}
		files := x.files(t)
		for _, sort := range slices.Sorted(maps.Keys(files)) {
			if slices.Contains(statementFiles, path.Base(sort)) {
				continue
			}
			removals = append(removals, removal{x, sort, files[sort]})
		}
	}
	t.Logf("%d removals", len(removals))
	for _, r := range longtest.Sample(removals, 12) {
		t.Run(r.on.name+" "+strings.ReplaceAll(r.sort, "/", "_"), func(t *testing.T) {
			t.Parallel()
			top, err := discover.Discover(t.Context(), discover.Options{FS: r.on.without(t, r.paths), Origin: "fixture"})
			if err != nil {
				t.Fatal(err)
			}
			after, index := run(t, top), topo.NewIndex(top)
			for _, f := range r.on.report.Findings() {
				gone := slices.ContainsFunc(f.Subjects, func(id topo.ID) bool { return index.Node(id) == nil })
				if f.Severity != doctor.Info && !gone && !stays(&f, after) {
					t.Errorf("without %s: %s of %v is neither found nor said to be unknown", r.paths[0], f.Code, f.Subjects)
				}
			}
		})
	}
}

// content is what a file says, or where a link leads; "" where it is not there.
func content(tree fs.FS, name string) string {
	if target, err := fs.ReadLink(tree, name); err == nil {
		return target
	}
	data, _ := fs.ReadFile(tree, name)
	return string(data)
}

// What a check finds fault with where a file says something else is not ok without that file.
func TestUnreadIsNotOK(t *testing.T) {
	for name, patches := range faulty {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, changes, _ := strings.Cut(patches, "\n")
			if changes == "" {
				return // a fixture as it is
			}
			base, err := fixtures.Open(strings.TrimPrefix(first, "base: "))
			if err != nil {
				t.Fatal(err)
			}
			tree, err := fixtures.OpenFile([]byte("machine: v\ndescription: a variant\n" + patches + "\n"))
			if err != nil {
				t.Fatal(err)
			}
			x := examined{name, memory(t, base), diagnose(t, base)}
			var changed []string
			if err := fs.WalkDir(base, ".", func(name string, e fs.DirEntry, err error) error {
				_, gone := fs.Lstat(tree, name)
				if gone != nil || !e.IsDir() && content(base, name) != content(tree, name) {
					changed = append(changed, name)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			after := diagnose(t, x.without(t, changed))
			for _, f := range diagnose(t, tree).Findings() {
				i := slices.IndexFunc(after.Checks, func(c doctor.CheckResult) bool { return c.Code == f.Code })
				if f.Severity != doctor.Info && x.report.Checks[i].Status == doctor.OK && after.Checks[i].Status == doctor.OK {
					t.Errorf("without %v, %s is ok", changed, f.Code)
				}
			}
		})
	}
}
