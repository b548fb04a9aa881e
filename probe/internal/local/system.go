package local

import (
	"math"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/cpuset"
	"github.com/topoctl/topoctl/probe/internal/lane"
)

// system is what memory pairs need of the operating system. Tests replace it.
type system struct {
	allowed   func() (cpuset.Set, error)             // CPUs that this process may use
	pin       func(cpu int) (undo func(), err error) // ties the calling goroutine
	available func() (bytes int64, ok bool)          // memory
	alloc     func(int64, memory.Options) (*memory.Block, error)
	load      func() *lane.Load
	smaps     func() string // /proc/self/smaps
}

// parseNodeFree is the memory that a NUMA node can provide, by its meminfo: free pages, and pages of files
// that are not in use.
func parseNodeFree(meminfo string) (bytes int64, ok bool) {
	for line := range strings.Lines(meminfo) {
		f := strings.Fields(line) // "Node 0 MemFree: 123 kB"
		if len(f) != 5 || f[2] != "MemFree:" && f[2] != "Inactive(file):" {
			continue
		}
		kib, err := strconv.ParseInt(f[3], 10, 52)
		if err != nil || kib < 0 {
			return 0, false
		}
		bytes += kib << 10
		ok = ok || f[2] == "MemFree:"
	}
	return bytes, ok
}

// parseSize reads a size of sysfs, "266240K".
func parseSize(s string) (bytes int64, ok bool) {
	shift := 0
	for suffix, n := range map[string]int{"K": 10, "M": 20, "G": 30} {
		if number, found := strings.CutSuffix(s, suffix); found {
			s, shift = number, n
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>shift {
		return 0, false
	}
	return n << shift, true
}

// maxCPUs bounds the CPUs whose caches are read.
const maxCPUs = 8192

// lastLevel is the size of the last-level caches of some CPUs, each counted once; 0 not known. Source:
// Documentation/ABI/testing/sysfs-devices-system-cpu.
func lastLevel(sysfs string, cpus cpuset.Set) (bytes int64) {
	type cache struct {
		level  int
		shared string
	}
	found := map[cache]int64{}
	deepest := 0
	for cpu := range cpus.All() {
		if cpu == maxCPUs {
			break
		}
		for index := range 8 {
			dir := sysfs + "/devices/system/cpu/cpu" + strconv.Itoa(cpu) + "/cache/index" + strconv.Itoa(index)
			level, err := strconv.Atoi(lane.FileText(dir + "/level"))
			size, ok := parseSize(lane.FileText(dir + "/size"))
			if err != nil || !ok || lane.FileText(dir+"/type") == "Instruction" {
				continue
			}
			found[cache{level, lane.FileText(dir + "/shared_cpu_list")}] = size
			deepest = max(deepest, level)
		}
	}
	for c, size := range found {
		if c.level == deepest {
			bytes += size
		}
	}
	return bytes
}
