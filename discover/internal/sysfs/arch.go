package sysfs

import (
	"runtime"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// architectures are the spellings of architectures in names of kernels and
// compilers, and what uname -m says there.
var architectures = []struct{ word, machine string }{
	{"x86_64", "x86_64"}, {"amd64", "x86_64"}, {"aarch64", "aarch64"}, {"arm64", "aarch64"},
	{"ppc64le", "ppc64le"}, {"powerpc64le", "ppc64le"}, {"riscv64", "riscv64"}, {"s390x", "s390x"},
	{"loongarch64", "loongarch64"}, {"i686", "i686"}, {"686-pae", "i686"}, {"i586", "i586"},
}

// readArch tells the architecture: our own when live, else what the kernel
// says (since 6.1), what its release ends with, what the processor shows, or
// what compiler built the kernel. It stays unknown where none of them tells.
func (r *reader) readArch(info cpuInfo) {
	h := &r.t.Host
	set := func(arch string, source topo.Source, where string) {
		h.Arch = arch
		h.Facts.Set("arch", source, where)
	}
	if r.live {
		set(archOf(runtime.GOARCH), topo.SourceDerived, "GOARCH")
		return
	}
	r.hostText(&h.Arch, "arch", "proc/sys/kernel/arch")
	if h.Arch != "" {
		return
	}
	for _, a := range architectures {
		if strings.HasSuffix(h.Kernel, "."+a.word) || strings.HasSuffix(h.Kernel, "-"+a.word) {
			set(a.machine, topo.SourceDerived, "kernel")
			return
		}
	}
	if info.arch != "" {
		set(info.arch, topo.SourceProc, "/proc/cpuinfo")
		return
	}
	version, _ := r.readHead("proc/version", 512)
	for _, a := range architectures {
		if strings.Contains(string(version), "("+a.word+"-linux-gnu-gcc") {
			set(a.machine, topo.SourceProc, "/proc/version")
			return
		}
	}
}

// archOf is what uname -m says where the Go name of the architecture is this.
func archOf(goarch string) string {
	known := map[string]string{
		"amd64": "x86_64", "arm64": "aarch64", "386": "i686", "loong64": "loongarch64", "arm": "armv7l",
	}
	if arch := known[goarch]; arch != "" {
		return arch
	}
	return goarch
}
