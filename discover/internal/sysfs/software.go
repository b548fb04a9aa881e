package sysfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

const (
	moduleDir     = "sys/module"
	cmdlineFile   = "proc/cmdline"
	nvidiaVersion = "proc/driver/nvidia/version"
)

// LimitsFile tells the limits of the process that reads it.
const LimitsFile = "proc/self/limits"

// relevantModules are the kernel modules that Software.Modules tells of, as
// /sys/module spells them, sorted.
var relevantModules = []string{
	"amdgpu", "bnxt_re", "efa", "efa_nv_peermem", "gdrdrv", "habanalabs", "i915", "ib_core", "ib_ipoib", "ib_peer_mem", "ib_umad",
	"ib_uverbs", "irdma", "mlx4_ib", "mlx5_core", "mlx5_ib", "nv_peer_mem", "nvidia", "nvidia_peermem", "nvidia_uvm",
	"rdma_cm", "rdma_rxe", "rdma_ucm", "siw", "xe",
}

// readSoftware reads what of the host's set-up decides whether devices may
// reach memory. It stays nil in a tree that has none of the files.
func (r *reader) readSoftware() {
	s := topo.Software{Modules: r.modules()}
	facts := &r.t.Host.Facts
	if s.Modules != nil {
		facts.Set("modules", topo.SourceSysfs, "/"+moduleDir)
	}
	if text, ok := r.proc().text("cmdline", optional); ok {
		s.KernelOptions = kernelOptions(text)
		facts.Set("kernel_options", topo.SourceProc, "/"+cmdlineFile)
	}
	if kind, ok := readWhole(r, nvidiaVersion, parseGPUModule); ok {
		s.GPUModule = kind
		facts.Set("gpu_module", topo.SourceProc, "/"+nvidiaVersion)
	}
	if limit, ok := readWhole(r, LimitsFile, parseMemlock); ok {
		s.Memlock = limit
		limit.Exempt = r.lockExempt()
		facts.Set("memlock", topo.SourceProc, "/"+LimitsFile)
	}
	s.Environment = r.readEnvironment()
	if s.Modules != nil || s.KernelOptions != nil || s.GPUModule != "" || s.Memlock != nil || s.Environment != nil {
		r.t.Host.Software = &s
	}
}

func (r *reader) proc() files { return files{r: r, dir: "proc", show: "proc"} }

// readWhole reads a file of several lines through a parser; that it is not there
// is no warning.
func readWhole[T any](r *reader, name string, parse func([]byte) (T, error)) (v T, ok bool) {
	dir, base := path.Split(name)
	f := files{r: r, dir: path.Clean(dir), show: path.Clean(dir)}
	data, err := r.tree.ReadFile(name)
	if err != nil {
		f.readError(base, optional, err)
		return v, false
	}
	v, err = parse(data)
	if err != nil {
		f.warn(topo.CodeMalformed, base, err.Error())
		return v, false
	}
	return v, true
}

// modules are the relevant modules that the kernel has. They are asked for by
// name: the names of the others are nobody's business, and a capture holds
// what was read. nil: there is no list.
func (r *reader) modules() []string {
	info, err := r.tree.Lstat(moduleDir)
	if err != nil || !info.IsDir() {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.warn(topo.CodeUnreadable, "", moduleDir, reason(err))
		}
		return nil
	}
	found := []string{}
	for _, name := range relevantModules {
		_, err := r.tree.Lstat(moduleDir + "/" + name)
		switch {
		case err == nil:
			found = append(found, name)
		case !errors.Is(err, fs.ErrNotExist):
			r.warn(topo.CodeUnreadable, "", moduleDir, reason(err))
			return nil
		}
	}
	return found
}

// optionPrefixes begin the kernel options that a topology may hold.
// Source: Documentation/admin-guide/kernel-parameters.txt.
var optionPrefixes = []string{
	"iommu=", "iommu.", "intel_iommu=", "amd_iommu=", "arm-smmu", "pci=", "pcie_",
	"default_hugepagesz=", "hugepagesz=", "hugepages=", "numa_balancing=", "numa=",
}

// kernelOptions are the words of a kernel command line that a topology may
// hold, in their order: of two that set the same, the last counts. What
// follows "--" is for the first process. Like the kernel it takes blanks
// between quotes as part of a word.
// None of these options has a value with blanks or quotes in it.
// Source: lib/cmdline.c (next_arg).
func kernelOptions(line string) []string {
	kept := []string{}
	quoted := false
	words := strings.FieldsFunc(line, func(c rune) bool {
		if c == '"' {
			quoted = !quoted
		}
		return !quoted && (c == ' ' || c == '\t')
	})
	for _, word := range words {
		if word == "--" {
			break
		}
		if word[0] == '"' {
			word = strings.Trim(word, `"`)
		}
		begins := func(prefix string) bool { return strings.HasPrefix(word, prefix) }
		if slices.ContainsFunc(optionPrefixes, begins) && !strings.ContainsAny(word, " \t\"") {
			kept = append(kept, word)
		}
	}
	return kept
}

// parseGPUModule knows NVIDIA's open kernel module from the proprietary one:
// "NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  ..." and "NVIDIA UNIX
// x86_64 Kernel Module  535.129.03  ...".
// Source: NVIDIA/open-gpu-kernel-modules, nv-procfs.c and nv_compiler.h.
func parseGPUModule(data []byte) (string, error) {
	line, _, _ := bytes.Cut(data, []byte{'\n'})
	switch text := string(line); {
	case strings.Contains(text, "NVIDIA UNIX Open"+moduleWords):
		return "open", nil
	case strings.Contains(text, "NVIDIA UNIX ") && strings.Contains(text, moduleWords):
		return "proprietary", nil
	default:
		return "", fmt.Errorf("%q: names no NVIDIA kernel module", clip(text))
	}
}

const moduleWords = " Kernel Module"

const memlockName = "Max locked memory"

// parseMemlock reads "Max locked memory  8388608  unlimited  bytes".
// Source: fs/proc/base.c (proc_pid_limits).
func parseMemlock(data []byte) (*topo.Memlock, error) {
	for line := range bytes.Lines(data) {
		rest, found := strings.CutPrefix(string(line), memlockName)
		if !found {
			continue
		}
		words := strings.Fields(rest)
		if len(words) < 2 {
			return nil, fmt.Errorf("%q: want two limits", clip(strings.TrimSpace(string(line))))
		}
		soft, err1 := parseLimit(words[0])
		hard, err2 := parseLimit(words[1])
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("%s: %w", memlockName, err)
		}
		return &topo.Memlock{SoftBytes: soft, HardBytes: hard}, nil
	}
	return nil, fmt.Errorf("no line %q", memlockName)
}

// parseLimit is nil for "unlimited", and for numbers that no address space reaches: a limit
// set in KiB from an unlimited one in bytes reads 18446744073708503040.
func parseLimit(s string) (*int64, error) {
	if s == "unlimited" {
		return nil, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%q: want bytes, or unlimited", clip(s))
	}
	if n > math.MaxInt64 {
		return nil, nil
	}
	return new(int64(n)), nil
}

// ForCapture is what a capture may hold of a file's content. Of files that say
// more about their host than discovery asks for, that is what it asks for: the
// kernel's command line may hold anything, and who built NVIDIA's module and
// which addresses have a traffic class of their own is for the host to know.
func ForCapture(name string, data []byte) []byte {
	switch {
	case name == cmdlineFile:
		text, err := oneLine(data)
		if err != nil {
			return nil
		}
		return []byte(strings.Join(kernelOptions(text), " ") + "\n")
	case name == nvidiaVersion:
		line, _, _ := bytes.Cut(data, []byte{'\n'})
		kind := max(0, bytes.Index(line, []byte(moduleWords)))
		if i := bytes.IndexByte(line[kind:], '('); i >= 0 { // (user@host), after what is asked for
			line = line[:kind+i]
		}
		return append(bytes.TrimSpace(bytes.Clone(line)), '\n')
	case name == LimitsFile:
		return keepLine(data, memlockName)
	case name == environFile:
		return keepSettings(data, 0)
	case slices.Contains(settingFiles, name):
		return keepSettings(data, '\n')
	case name == statusFile:
		return keepLine(data, capEffective)
	case path.Base(name) == "traffic_class":
		return keepLine(data, globalClass)
	}
	return data
}

// keepLine is the first line that begins with a prefix, nothing if none does.
func keepLine(data []byte, prefix string) []byte {
	for line := range bytes.Lines(data) {
		if bytes.HasPrefix(line, []byte(prefix)) {
			return line
		}
	}
	return nil
}
