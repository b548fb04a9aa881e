package sysfs

import (
	"errors"
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
