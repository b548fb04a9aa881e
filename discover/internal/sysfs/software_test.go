package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/hosttree"
)

func TestKernelOptions(t *testing.T) {
	for line, want := range map[string][]string{
		"": {},
		"BOOT_IMAGE=/boot/vmlinuz-6.8.0 root=UUID=5e0ffa1d ro quiet":                       {},
		"ro intel_iommu=on iommu=pt,strict iommu.passthrough=1 amd_iommu=off":              {"intel_iommu=on", "iommu=pt,strict", "iommu.passthrough=1", "amd_iommu=off"},
		"arm-smmu-v3.disable_bypass=0 arm-smmu.disable_bypass=y":                           {"arm-smmu-v3.disable_bypass=0", "arm-smmu.disable_bypass=y"},
		"pci=realloc,disable_acs_redir=0000:17:01.0 pcie_acs_override=x pcie_aspm=off":     {"pci=realloc,disable_acs_redir=0000:17:01.0", "pcie_acs_override=x", "pcie_aspm=off"},
		"default_hugepagesz=1G hugepagesz=1G hugepages=16 numa_balancing=disable numa=off": {"default_hugepagesz=1G", "hugepagesz=1G", "hugepages=16", "numa_balancing=disable", "numa=off"},
		"iommu=on\tiommu=pt":                            {"iommu=on", "iommu=pt"}, // in their order: the last counts
		"mitigations=off iommux=1 numastat=1 ipci=1":    {},
		"nfs.token=\"a iommu=/private b\" iommu=pt":     {"iommu=pt"},
		`"iommu=pt" "numa=off" x="`:                     {"iommu=pt", "numa=off"},
		`"iommu=/my secret" iommu=pt`:                   {"iommu=pt"},
		"iommu=pt -- --token iommu=/private numa=thing": {"iommu=pt"},
		"systemd.setenv=X=iommu=pt":                     {},
	} {
		got := kernelOptions(line)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", line, diff)
		}
		if again := kernelOptions(strings.Join(got, " ")); cmp.Diff(got, again) != "" {
			t.Errorf("%q: what a capture holds gives %q", line, again)
		}
	}
}

func TestParseGPUModule(t *testing.T) {
	for text, want := range map[string]string{
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build  (root@gpu12)  Sat\nGCC version:  x\n": "open",
		"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  560.35.03  Release Build":                                       "open",
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\nGCC version:  x\n":              "proprietary",
		"NVRM version: NVIDIA UNIX aarch64 Kernel Module  550.54.15":                                                               "proprietary",
		"GCC version: Open Kernel Module":    "",
		"NVRM version: something else":       "",
		"\nNVIDIA UNIX x86_64 Kernel Module": "",
		"":                                   "",
	} {
		if got, err := parseGPUModule([]byte(text)); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestParseMemlock(t *testing.T) {
	eight, zero := new(int64(8<<20)), new(int64(0))
	for _, tt := range []struct {
		text string
		want *topo.Memlock
		err  string
	}{
		{limits("8388608", "8388608"), &topo.Memlock{SoftBytes: eight, HardBytes: eight}, ""},
		{limits("8388608", "unlimited"), &topo.Memlock{SoftBytes: eight}, ""},
		{limits("unlimited", "unlimited"), &topo.Memlock{}, ""},
		{limits("8388608", "18446744073708503040"), &topo.Memlock{SoftBytes: eight}, ""},
		{limits("0", "8388608"), &topo.Memlock{SoftBytes: zero, HardBytes: eight}, ""},
		{"Max locked memory 0 0", &topo.Memlock{SoftBytes: zero, HardBytes: zero}, ""},
		{"Max open files 1 2 files\n", nil, `no line "Max locked memory"`},
		{"", nil, `no line "Max locked memory"`},
		{"Max locked memory 5\n", nil, "want two limits"},
		{limits("-1", "8388608"), nil, `"-1": want bytes`},
		{limits("8388608", "99999999999999999999"), nil, `"99999999999999999999": want bytes`},
		{limits("much", "more"), nil, `"much": want bytes`},
	} {
		got, err := parseMemlock([]byte(tt.text))
		if diff := cmp.Diff(tt.want, got); diff != "" || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: %v, want %q\n%s", tt.text, err, tt.err, diff)
		}
	}
}

func TestModules(t *testing.T) {
	tests := []struct {
		name   string
		change func(*machine)
		want   []string
	}{
		{"two and one of nobody's business", func(*machine) {}, []string{"mlx5_core", "nvidia"}},
		{"one more", func(m *machine) { m.dir("sys/module", "nvidia_peermem/initstate", "live") }, []string{"mlx5_core", "nvidia", "nvidia_peermem"}},
		{"none of them", func(m *machine) { m.remove("sys/module/nvidia"); m.remove("sys/module/mlx5_core") }, []string{}},
		{"no list", func(m *machine) { m.remove("sys/module") }, nil},
		{"not a directory", func(m *machine) { m.remove("sys/module"); m.file("sys/module", "") }, nil},
	}
	for _, tt := range tests {
		m := newMachine()
		tt.change(m)
		top := m.read(t)
		_, told := top.Host.Facts.Get("modules")
		if diff := cmp.Diff(tt.want, top.Host.Software.Modules); diff != "" || told != (tt.want != nil) || len(top.Warnings) > 0 {
			t.Errorf("%s: fact %v, %q (-want +got):\n%s", tt.name, told, texts(top.Warnings), diff)
		}
	}
}

// denied is a tree that does not let one directory be searched.
type denied struct {
	hosttree.Tree
	dir string
}

func (d denied) Lstat(name string) (fs.FileInfo, error) {
	if strings.HasPrefix(name, d.dir) {
		return nil, syscall.EACCES
	}
	return d.Tree.Lstat(name)
}

// TestModulesDenied: a list that may not be searched is not an empty list.
func TestModulesDenied(t *testing.T) {
	for _, dir := range []string{"sys/module", "sys/module/"} {
		top := Read(denied{newMachine().tree(t), dir}, false)
		if top.Host.Software.Modules != nil || !warned(top, topo.CodeUnreadable, "permission denied (/sys/module)") || len(top.Warnings) != 1 {
			t.Errorf("%s: %q, %q", dir, top.Host.Software.Modules, texts(top.Warnings))
		}
	}
}

// TestSoftware: each file that is not there costs its own fact and no warning;
// one that cannot be read or understood leaves a warning with its name.
func TestSoftware(t *testing.T) {
	files := map[string]string{
		"proc/cmdline": "kernel_options", "proc/self/limits": "memlock", "proc/driver/nvidia/version": "gpu_module",
	}
	full := newMachine().read(t).Host.Facts
	for name, attr := range files {
		if f, ok := full.Get(attr); !ok || f.Source != topo.SourceProc || f.Where != "/"+name {
			t.Errorf("%s: fact %+v", attr, f)
		}
		for how, change := range map[string]func(*machine){
			"gone":    func(m *machine) { m.remove(name) },
			"denied":  func(m *machine) { m.errors[name] = syscall.EACCES },
			"garbled": func(m *machine) { m.file(name, "\x00\x01") },
		} {
			m := newMachine()
			change(m)
			top := m.read(t)
			if _, told := top.Host.Facts.Get(attr); told {
				t.Errorf("%s %s: %s is told", name, how, attr)
			}
			code := map[string]topo.Code{"denied": topo.CodeUnreadable, "garbled": topo.CodeMalformed}[how]
			if how == "gone" && len(top.Warnings) > 0 || how != "gone" && (len(top.Warnings) != 1 || !warned(top, code, "(/"+name+")")) {
				t.Errorf("%s %s: %q", name, how, texts(top.Warnings))
			}
			if len(top.Host.Facts) != len(full)-1 {
				t.Errorf("%s %s: %d facts, want one less than %d", name, how, len(top.Host.Facts), len(full))
			}
		}
	}
	m := newMachine()
	m.remove("sys/module")
	for name := range files {
		m.remove(name)
	}
	if s := m.read(t).Host.Software; s != nil {
		t.Errorf("nothing is there: %+v", s)
	}
}

// TestSelfIsALink: a live host has a link to the process's directory.
func TestSelfIsALink(t *testing.T) {
	m := newMachine()
	m.remove("proc/self")
	m.file("proc/4711/limits", limits("65536", "65536"))
	m.link("proc/self", "4711")
	if l := m.read(t).Host.Software.Memlock; l == nil || *l.SoftBytes != 65536 {
		t.Errorf("%+v", l)
	}
	m.remove("proc/4711") // of a process that is not there
	if top := m.read(t); top.Host.Software.Memlock != nil || len(top.Warnings) > 0 {
		t.Errorf("%+v, %q", top.Host.Software.Memlock, texts(top.Warnings))
	}
}

func TestForCapture(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"proc/cmdline", "root=/dev/mapper/secret iommu=pt hugepages=4\n", "iommu=pt hugepages=4\n"},
		{"proc/cmdline", "root=/dev/mapper/secret\n", "\n"},
		{"proc/cmdline", "\x00secret iommu=pt\n", ""},
		{"proc/self/limits", limits("1", "2"), "Max locked memory         1                    2                    bytes     \n"},
		{"proc/self/limits", "secret\n", ""},
		{"proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build  (root@gpu12)  Sat\nGCC version: x\n",
			"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build\n"},
		{"sys/devices/a/infiniband/mlx5_0/tc/1/traffic_class", "src_ip=10.1.2.3,tclass=96\nGlobal tclass=106\n", "Global tclass=106\n"},
		{"proc/self/environ", "AWS_SECRET=x\x00NCCL_IB_GID_INDEX=3\x00HOME=/root\x00", "NCCL_IB_GID_INDEX=3\x00"},
		{"proc/self/environ", "MC_GID_INDEX=a secret that is too long or has blanks", "MC_GID_INDEX=?\x00"},
		{"etc/nccl.conf", "# ours\nNCCL_DEBUG=INFO\n NCCL_IB_GID_INDEX = 3 \n", "NCCL_IB_GID_INDEX=3\n"},
		{"proc/self/status", "Name:\ttopoctl\nUid:\t1000\nCapEff:\t0000000000004000\n", "CapEff:\t0000000000004000\n"},
		{"sys/class/net/eth0/mtu", "1500\n", "1500\n"},
	} {
		got := ForCapture(tt.name, []byte(tt.text))
		if string(got) != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if again := ForCapture(tt.name, got); string(again) != tt.want && tt.want != "" {
			t.Errorf("%s again: %q", tt.name, again)
		}
	}
}

// TestEnvironment: of the environment and the host's files only the settings that
// count are kept, files first; an environment that cannot be read is not an empty
// one.
func TestEnvironment(t *testing.T) {
	m := newMachine()
	if got := m.read(t).Host.Software.Environment; got != nil {
		t.Errorf("no environment: %+v", got)
	}
	m.file("proc/self/environ", "")
	if got := m.read(t).Host.Software.Environment; got == nil || got.Settings == nil || len(got.Settings) > 0 {
		t.Errorf("an empty environment: %+v", got)
	}
	m.file("proc/self/environ", "PASSWORD=x\x00UCX_IB_GID_INDEX=auto\x00XNCCL_IB_GID_INDEX=9\x00NCCL_IB_GID_INDEX=3\x00")
	m.file("etc/nccl.conf", "NCCL_IB_GID_INDEX=1\n#NCCL_IB_GID_INDEX=5\nNCCL_SOCKET_IFNAME=eth0\n")
	m.file("etc/ucx/ucx.conf", "UCX_IB_GID_INDEX=\"2\"\n")
	top := m.read(t)
	want := []topo.Setting{
		{Name: "NCCL_IB_GID_INDEX", Value: "1", Where: "/etc/nccl.conf"}, {Name: "UCX_IB_GID_INDEX", Value: "2", Where: "/etc/ucx/ucx.conf"},
		{Name: "UCX_IB_GID_INDEX", Value: "auto", Where: "/proc/self/environ"}, {Name: "NCCL_IB_GID_INDEX", Value: "3", Where: "/proc/self/environ"},
	}
	if diff := cmp.Diff(want, top.Host.Software.Environment.Settings); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if f, ok := top.Host.Facts.Get("environment"); !ok || f.Where != "/proc/self/environ" {
		t.Errorf("fact %+v", f)
	}
	m.errors["proc/self/environ"] = syscall.EACCES
	if top := m.read(t); top.Host.Software.Environment != nil || len(top.Warnings) > 0 {
		t.Errorf("denied: %+v, %q", top.Host.Software.Environment, texts(top.Warnings))
	}
}

// TestLockExempt: CAP_IPC_LOCK counts in the first user namespace only.
func TestLockExempt(t *testing.T) {
	first, other := "         0          0 4294967295\n", "         0     100000      65536\n"
	for _, tt := range []struct {
		status, uidMap string
		want           *bool
	}{
		{"", "", nil},
		{"CapEff:\t000001ffffffffff\n", "", nil},
		{"CapEff:\t000001ffffffffff\n", first, new(true)},
		{"CapEff:\t0000000000004000\n", first, new(true)},
		{"CapEff:\t000001ffffffffff\n", other, new(false)},
		{"CapEff:\t0000000000000000\n", first, new(false)},
		{"CapInh:\t0000000000004000\nCapEff:\t0000000000000001\n", first, new(false)},
		{"Name:\tx\n", first, nil},
	} {
		m := newMachine()
		if tt.status != "" {
			m.file("proc/self/status", tt.status)
		}
		if tt.uidMap != "" {
			m.file("proc/self/uid_map", tt.uidMap)
		}
		if diff := cmp.Diff(tt.want, m.read(t).Host.Software.Memlock.Exempt); diff != "" {
			t.Errorf("%q %q: -want +got:\n%s", tt.status, tt.uidMap, diff)
		}
	}
	m := newMachine()
	m.file("proc/self/status", "CapEff:\tall\n")
	if top := m.read(t); !warned(top, topo.CodeMalformed, `"all": want a hexadecimal number (/proc/self/status)`) {
		t.Errorf("%q", texts(top.Warnings))
	}
}

func TestParseAdminUp(t *testing.T) {
	for text, want := range map[string]string{"0x1003": "true", "0x1002": "false", "0x0": "false", "1003": "", "": "", "0xup": "", "0x100000000": ""} {
		got, err := parseAdminUp(text)
		if (err == nil) != (want != "") || err == nil && fmt.Sprint(got) != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// FuzzSoftware: no content makes a parser panic, what is kept of a command
// line is part of it, and a capture of a file tells what the file does.
func FuzzSoftware(f *testing.F) {
	for _, seed := range []string{"", "ro iommu=pt \"numa=off\" -- x", "Global tclass=106\n", limits("1", "unlimited"), "NVIDIA UNIX x86_64 Kernel Module (x)\n", "NVIDIA UNIX (x Kernel Module (x)\n", "0xffff\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		options := kernelOptions(string(data))
		for _, word := range options {
			if !strings.Contains(string(data), word) || strings.ContainsAny(word, " \t") {
				t.Errorf("kept %q", word)
			}
		}
		same := func(name string, ask func([]byte) (any, error)) {
			want, err1 := ask(data)
			got, err2 := ask(ForCapture(name, data))
			if err1 == nil && (err2 != nil || cmp.Diff(want, got) != "") {
				t.Errorf("%s: %v, captured %v (%v)", name, want, got, err2)
			}
		}
		same("proc/cmdline", func(b []byte) (any, error) {
			s, err := oneLine(b)
			if len(b) == 0 {
				return []string{}, errors.New("empty")
			}
			return kernelOptions(s), err
		})
		for name, sep := range map[string]byte{environFile: 0, "etc/nccl.conf": '\n'} {
			same(name, func(b []byte) (any, error) { return settings(b, sep, ""), nil })
		}
		same(statusFile, func(b []byte) (any, error) { return parseCapability(b) })
		same(LimitsFile, func(b []byte) (any, error) { return parseMemlock(b) })
		same(nvidiaVersion, func(b []byte) (any, error) { return parseGPUModule(b) })
		same("tc/1/traffic_class", func(b []byte) (any, error) { return parseTrafficClass(b) })
	})
}

func TestRelevantModules(t *testing.T) {
	seen := ""
	for _, name := range relevantModules {
		if name <= seen || strings.Contains(name, "-") {
			t.Errorf("%s after %s: want names sorted, as /sys/module spells them", name, seen)
		}
		seen = name
	}
}
