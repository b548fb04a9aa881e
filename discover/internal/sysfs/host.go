package sysfs

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// readHost reads the facts of the machine as a whole.
func (r *reader) readHost() {
	h := &r.t.Host
	r.hostText(&h.Name, "name", "proc/sys/kernel/hostname", "etc/hostname")
	r.hostText(&h.Kernel, "kernel", "proc/sys/kernel/osrelease")
	if h.Kernel == "" {
		version, _ := r.readHead("proc/version", 256)
		if words := strings.Fields(string(version)); len(words) > 2 && words[0] == "Linux" && validName(words[2]) {
			h.Kernel = words[2]
			h.Facts.Set("kernel", topo.SourceProc, "/proc/version")
		}
	}
	r.hostText(&h.Vendor, "vendor", "sys/class/dmi/id/sys_vendor")
	r.hostText(&h.Product, "product", "sys/class/dmi/id/product_name")
	r.readMachineID()
	if n, ok := r.proc().memTotal("meminfo", optional); ok {
		h.MemoryBytes = &n
		h.Facts.Set("memory_bytes", topo.SourceProc, "/proc/meminfo")
	}
	info := r.readCPUInfo()
	r.readArch(info)
	r.readVirtual(info)
	if r.live {
		r.readContainer()
	}
	r.readSoftware()
}

// hostText sets a text from the first of some files that has one.
func (r *reader) hostText(to *string, name string, paths ...string) {
	for _, p := range paths {
		i := strings.LastIndexByte(p, '/')
		f := files{r: r, dir: p[:i], show: p[:i]}
		if s, ok := f.text(p[i+1:], optional); ok && s != "" {
			*to = s
			r.t.Host.Facts.Set(name, sourceOf(p), "/"+p)
			return
		}
	}
}

// readMachineID keeps a hash of the machine's ID: the ID itself is
// confidential (machine-id(5)).
func (r *reader) readMachineID() {
	f := files{r: r, dir: "etc", show: "etc"}
	id, ok := value(f, "machine-id", optional, parseMachineID)
	if !ok || id == "" {
		return
	}
	sum := sha256.Sum256([]byte(id))
	r.t.Host.MachineIDSHA256 = hex.EncodeToString(sum[:])
	r.t.Host.Facts.Set("machine_id_sha256", topo.SourceProc, "/etc/machine-id")
}

// parseMachineID wants 32 hexadecimal digits; an image that was never started
// has an empty file or says "uninitialized".
func parseMachineID(s string) (string, error) {
	if s == "" || s == "uninitialized" {
		return "", nil
	}
	if len(s) != 32 || strings.Trim(strings.ToLower(s), "0123456789abcdef") != "" {
		return "", fmt.Errorf("%d characters, want 32 hexadecimal digits", len(s))
	}
	return strings.ToLower(s), nil
}

// cpuInfo is what the first CPU's part of /proc/cpuinfo tells.
type cpuInfo struct {
	arch       string // "" where it does not show
	vendor     string
	model      string
	family, id *int
	arm        bool
	hypervisor bool // the flag that a hypervisor sets
	flags      bool // there is a flags line at all, as on x86
	siblings   *int // online CPUs of the first CPU's package
	cores      *int // cores that they are on
}

// readCPUInfo reads the CPU's name. One part is enough, and the file is long;
// only arm machines, whose cores may differ, are read whole.
func (r *reader) readCPUInfo() cpuInfo {
	const size = 8 << 10
	data, there := r.readHead("proc/cpuinfo", size)
	if len(data) == size { // the last line is cut
		data = data[:bytes.LastIndexByte(data, '\n')+1]
	}
	if bytes.Contains(data, []byte("CPU implementer")) {
		if all, err := r.tree.ReadFile("proc/cpuinfo"); err == nil {
			data = all
		}
	}
	info := parseCPUInfo(data)
	r.cpus.siblings, r.cpus.cores = info.siblings, info.cores
	if there && !bytes.Contains(data, []byte("processor")) {
		r.warn(topo.CodeMalformed, "", "proc/cpuinfo", "describes no processor")
	}
	h := &r.t.Host
	h.CPUVendor, h.CPUModel, h.CPUFamily, h.CPUModelID = info.vendor, info.model, info.family, info.id
	for name, set := range map[string]bool{
		"cpu_vendor": info.vendor != "", "cpu_model": info.model != "",
		"cpu_family": info.family != nil, "cpu_model_id": info.id != nil,
	} {
		if set {
			h.Facts.Set(name, topo.SourceProc, "/proc/cpuinfo")
		}
	}
	return info
}

// parseCPUInfo reads x86, arm64 and POWER forms. Of each fact the first CPU's
// is taken. Only what is sure names the architecture: the flag "lm" (long
// mode) of x86, the feature "asimd" of a 64-bit ARM kernel.
func parseCPUInfo(data []byte) cpuInfo {
	var c cpuInfo
	var cores []string
	for line := range bytes.Lines(data) {
		key, v, ok := cpuinfoLine(line)
		if !ok || v == "" || len(v) > maxAttr {
			continue
		}
		text := func() string { s, _ := oneLine([]byte(v)); return s }
		switch {
		case key == "vendor_id" && c.vendor == "":
			c.vendor = text()
		case key == "model name" && c.model == "":
			c.model = text()
		case key == "cpu family" && c.family == nil:
			c.family = number(v)
		case key == "model" && c.id == nil:
			c.id = number(v)
		case key == "siblings" && c.siblings == nil:
			c.siblings = number(v)
		case key == "cpu cores" && c.cores == nil:
			c.cores = number(v)
		case key == "flags" && !c.flags:
			words := strings.Fields(v)
			c.flags, c.hypervisor = true, slices.Contains(words, "hypervisor")
			if slices.Contains(words, "lm") {
				c.arch = "x86_64"
			}
		case key == "CPU implementer" && c.vendor == "":
			c.vendor, c.arm = armVendor(v), true
		case key == "Features" && slices.Contains(strings.Fields(v), "asimd"):
			c.arch = "aarch64"
		case key == "CPU part":
			if name := armCore(c.vendor, v); !slices.Contains(cores, name) && len(cores) < 4 {
				cores = append(cores, name)
			}
		case key == "cpu" && c.model == "" && strings.HasPrefix(v, "POWER"):
			c.model, c.vendor = text(), "IBM"
		}
	}
	if c.arm {
		c.family, c.id = nil, nil
		c.model = cmp.Or(c.model, strings.Join(cores, " + "))
	}
	return c
}

func number(s string) *int {
	n, err := parseUint(s, 1<<30)
	if err != nil {
		return nil
	}
	return &n
}

// armVendor names the implementer of MIDR_EL1.
func armVendor(code string) string {
	names := map[string]string{
		"0x41": "ARM", "0x42": "Broadcom", "0x43": "Cavium", "0x46": "Fujitsu", "0x48": "HiSilicon",
		"0x4e": "NVIDIA", "0x51": "Qualcomm", "0x61": "Apple", "0x6d": "Microsoft", "0xc0": "Ampere",
	}
	return names[code]
}

// armCore names the server cores of ARM Ltd, others by number.
func armCore(vendor, part string) string {
	names := map[string]string{
		"0xd0c": "Neoverse-N1", "0xd40": "Neoverse-V1", "0xd49": "Neoverse-N2", "0xd4f": "Neoverse-V2",
		"0xd84": "Neoverse-V3", "0xd8e": "Neoverse-N3", "0xd85": "Cortex-X925", "0xd87": "Cortex-A725",
	}
	if name := names[part]; vendor == "ARM" && name != "" {
		return name
	}
	return "part " + clip(part)
}
