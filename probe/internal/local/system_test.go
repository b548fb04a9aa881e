package local

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/topoctl/topoctl/internal/cpuset"
)

func TestParseMemory(t *testing.T) {
	if n, ok := parseNodeFree("Node 1 MemTotal: 99 kB\nNode 1 MemFree:  10 kB\nNode 1 Inactive(file): 5 kB\n"); n != 15<<10 || !ok {
		t.Errorf("%d, %v", n, ok)
	}
	for _, text := range []string{"", "Node 1 Inactive(file): 5 kB\n", "Node 1 MemFree: x kB\n", "Node 1 MemFree: -1 kB\n"} {
		if n, ok := parseNodeFree(text); ok {
			t.Errorf("%q: %d", text, n)
		}
	}
}

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{"266240K": 266240 << 10, "32M": 32 << 20, "1G": 1 << 30, "512": 512} {
		if got, ok := parseSize(in); got != want || !ok {
			t.Errorf("%q: %d, %v", in, got, ok)
		}
	}
	for _, in := range []string{"", "K", "-1K", "99999999999999999K", "1T"} {
		if got, ok := parseSize(in); ok {
			t.Errorf("%q: %d", in, got)
		}
	}
}

// Each cache of the last level counts once, and instruction caches do not.
func TestLastLevel(t *testing.T) {
	dir := t.TempDir()
	cache := func(cpu, index, level, kind, size, shared string) {
		at := filepath.Join(dir, "devices/system/cpu/cpu"+cpu+"/cache/index"+index)
		if err := os.MkdirAll(at, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"level": level, "type": kind, "size": size, "shared_cpu_list": shared} {
			if err := os.WriteFile(filepath.Join(at, name), []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, cpu := range []string{"0", "1", "2", "3"} {
		shared := map[bool]string{true: "0-1", false: "2-3"}[cpu < "2"]
		cache(cpu, "0", "1", "Data", "48K", cpu)
		cache(cpu, "1", "1", "Instruction", "32K", cpu)
		cache(cpu, "2", "3", "Unified", "16M", shared)
	}
	for n, want := range map[int]int64{1: 16 << 20, 2: 16 << 20, 4: 32 << 20} {
		if got := lastLevel(dir, cpuset.Of([]int{0, 1, 2, 3}[:n]...)); got != want {
			t.Errorf("%d CPUs: %d", n, got)
		}
	}
	if got := lastLevel(filepath.Join(dir, "nowhere"), cpuset.Of(0)); got != 0 {
		t.Errorf("without /sys: %d", got)
	}
}

// Whatever the files hold, nothing breaks and no figure is below zero.
func FuzzParse(f *testing.F) {
	f.Add("266240K", "Node 0 MemFree: 1 kB")
	f.Fuzz(func(t *testing.T, size, meminfo string) {
		if n, ok := parseSize(size); ok && n < 0 {
			t.Fatalf("%q: %d", size, n)
		}
		parseNodeFree(meminfo)
	})
}
