package cpuset

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const (
	v2mount = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
	v1mount = "35 24 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n36 24 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
	meminfo = "MemTotal:  16777216 kB\nMemAvailable:    8388608 kB\n"
)

// tree is the files of a system, by their paths.
func tree(files map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, text := range files {
		out[strings.TrimPrefix(name, "/")] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

func TestMemoryLeft(t *testing.T) {
	const gib = 1 << 30
	system := Memory{Left: 8 * gib, File: "/proc/meminfo"}
	for _, c := range []struct {
		name  string
		files map[string]string
		want  Memory
	}{
		{"no groups", map[string]string{"/proc/meminfo": meminfo}, system},
		{"version 2, the group above is tighter", map[string]string{
			"/proc/meminfo": meminfo, "/proc/self/mountinfo": v2mount, "/proc/self/cgroup": "0::/job/step\n",
			"/sys/fs/cgroup/job/step/memory.max": "4294967296\n", "/sys/fs/cgroup/job/step/memory.current": "1073741824\n",
			"/sys/fs/cgroup/job/memory.max": "5368709120\n", "/sys/fs/cgroup/job/memory.current": "3221225472\n",
		}, Memory{2 * gib, 5 * gib, "/sys/fs/cgroup/job/memory.max"}},
		{"version 2, pages of files are given up", map[string]string{
			"/proc/meminfo": meminfo, "/proc/self/mountinfo": v2mount, "/proc/self/cgroup": "0::/job\n",
			"/sys/fs/cgroup/job/memory.max": "4294967296\n", "/sys/fs/cgroup/job/memory.current": "4294967296\n",
			"/sys/fs/cgroup/job/memory.stat": "anon 1073741824\nfile 3221225472\ninactive_file 1073741824\nactive_file 1073741824\nslab_reclaimable 0\ntotal_inactive_file 77\n",
		}, Memory{2 * gib, 4 * gib, "/sys/fs/cgroup/job/memory.max"}},
		{"version 2, max, and memory.high", map[string]string{
			"/proc/meminfo": meminfo, "/proc/self/mountinfo": v2mount, "/proc/self/cgroup": "0::/job\n",
			"/sys/fs/cgroup/job/memory.max": "max\n", "/sys/fs/cgroup/job/memory.current": "1073741824\n", "/sys/fs/cgroup/job/memory.high": "1\n",
		}, system},
		{"version 2, used is not told", map[string]string{
			"/proc/meminfo": meminfo, "/proc/self/mountinfo": v2mount, "/proc/self/cgroup": "0::/job\n",
			"/sys/fs/cgroup/job/memory.max": "1\n",
		}, system},
		{"version 2, more is used than is allowed", map[string]string{
			"/proc/meminfo": meminfo, "/proc/self/mountinfo": v2mount, "/proc/self/cgroup": "0::/job\n",
			"/sys/fs/cgroup/job/memory.max": "5\n", "/sys/fs/cgroup/job/memory.current": "1073741824\n",
		}, Memory{0, 5, "/sys/fs/cgroup/job/memory.max"}},
		{"version 2, a container with a namespace of its own", map[string]string{
			"/proc/meminfo": meminfo, "/proc/self/mountinfo": v2mount, "/proc/self/cgroup": "0::/\n",
			"/sys/fs/cgroup/memory.max": "1073741824\n", "/sys/fs/cgroup/memory.current": "0\n",
		}, Memory{gib, gib, "/sys/fs/cgroup/memory.max"}},
		{"version 1, a container without", map[string]string{
			"/proc/meminfo": meminfo, "/proc/self/cgroup": "4:memory:/docker/ab12\n0::/docker/ab12\n",
			"/proc/self/mountinfo":                        "35 24 0:30 /docker/ab12 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			"/sys/fs/cgroup/memory/memory.limit_in_bytes": "3221225472\n", "/sys/fs/cgroup/memory/memory.usage_in_bytes": "1073741824\n",
		}, Memory{2 * gib, 3 * gib, "/sys/fs/cgroup/memory/memory.limit_in_bytes"}},
		{"version 1, a group that is not below what is mounted", map[string]string{
			"/proc/meminfo": meminfo, "/proc/self/cgroup": "4:memory:/docker/ab123\n",
			"/proc/self/mountinfo":                        "35 24 0:30 /docker/ab12 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			"/sys/fs/cgroup/memory/memory.limit_in_bytes": "3221225472\n", "/sys/fs/cgroup/memory/memory.usage_in_bytes": "1073741824\n",
			"/sys/fs/cgroup/memory/3/memory.limit_in_bytes": "1\n", "/sys/fs/cgroup/memory/3/memory.usage_in_bytes": "1\n",
		}, Memory{2 * gib, 3 * gib, "/sys/fs/cgroup/memory/memory.limit_in_bytes"}},
		{"version 1, no limit", map[string]string{
			"/proc/meminfo": meminfo, "/proc/self/mountinfo": v1mount, "/proc/self/cgroup": "4:memory:/job\n3:cpu,cpuacct:/other\n",
			"/sys/fs/cgroup/memory/job/memory.limit_in_bytes": "9223372036854771712\n", "/sys/fs/cgroup/memory/job/memory.usage_in_bytes": "7\n",
		}, system},
		{"hybrid: memory is of version 1", map[string]string{
			"/proc/meminfo": meminfo, "/proc/self/cgroup": "4:memory:/job\n0::/elsewhere\n",
			"/proc/self/mountinfo":                            v1mount + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			"/sys/fs/cgroup/memory/job/memory.limit_in_bytes": "2147483648\n", "/sys/fs/cgroup/memory/job/memory.usage_in_bytes": "1073741824\n",
			"/sys/fs/cgroup/memory/job/memory.stat":       "inactive_file 999\ntotal_inactive_file 536870912\n",
			"/sys/fs/cgroup/unified/elsewhere/memory.max": "max\n",
		}, Memory{gib + gib/2, 2 * gib, "/sys/fs/cgroup/memory/job/memory.limit_in_bytes"}},
		{"groups, and a system that does not tell", map[string]string{
			"/proc/meminfo": "MemAvailable: x kB\n", "/proc/self/mountinfo": v2mount, "/proc/self/cgroup": "0::/job\n",
			"/sys/fs/cgroup/job/memory.max": "1073741824\n", "/sys/fs/cgroup/job/memory.current": "0\n",
		}, Memory{gib, gib, "/sys/fs/cgroup/job/memory.max"}},
		{"garbage", map[string]string{
			"/proc/meminfo": meminfo, "/proc/self/mountinfo": "- cgroup2\n35 24 0:30 x y - cgroup2 a b\n" + v2mount, "/proc/self/cgroup": "0::job\n::\n0::/../../etc\nx",
			"/etc/memory.max": "1\n", "/etc/memory.current": "1\n",
		}, system},
	} {
		got, ok := MemoryLeft(tree(c.files))
		if !ok || got != c.want {
			t.Errorf("%s: %+v, %v: want %+v", c.name, got, ok, c.want)
		}
	}
	if got, ok := MemoryLeft(tree(nil)); ok {
		t.Errorf("nothing tells: %+v", got)
	}
	for _, bad := range []string{"MemAvailable: 3\n", "MemAvailable: 99999999999999999 kB\n", "MemAvailable: -1 kB\n", "MemTotal: 9 kB"} {
		if got, ok := MemoryLeft(tree(map[string]string{"/proc/meminfo": bad})); ok {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}

func TestFolders(t *testing.T) {
	files := tree(map[string]string{
		"/proc/self/mountinfo": v1mount + v2mount, "/proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/a/b\n0::/a\n",
		"/sys/fs/cgroup/cpu,cpuacct/a/b/x": "", "/sys/fs/cgroup/memory/x/x": "", "/sys/fs/cgroup/a/x": "",
	})
	want := []string{"sys/fs/cgroup/cpu,cpuacct/a/b", "sys/fs/cgroup/cpu,cpuacct/a", "sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/a", "sys/fs/cgroup"}
	if got := GroupFolders(files, "cpu"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Files of the system, as hostile as can be, lead to no folder outside of the mounts.
func FuzzMemoryLeft(f *testing.F) {
	f.Add("0::/a/b\n", v2mount, "1", "5")
	f.Add("4:memory:/docker/ab\n", v1mount, "9223372036854771712", "-1")
	f.Fuzz(func(t *testing.T, cgroups, mounts, limit, used string) {
		files := tree(map[string]string{
			"/proc/self/cgroup": cgroups, "/proc/self/mountinfo": mounts,
			"/sys/fs/cgroup/memory.max": limit, "/sys/fs/cgroup/memory.current": used, "/sys/fs/cgroup/memory.stat": "inactive_file " + used,
		})
		if m, ok := MemoryLeft(files); ok && (m.Left < 0 || m.Left > m.Limit) {
			t.Fatalf("%+v", m)
		}
	})
}
