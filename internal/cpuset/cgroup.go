package cpuset

import (
	"bytes"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// GroupFolders are those of this process's groups of a controller ("memory", "cpu") and of the
// groups above them, as far as they can be seen: paths in the tree, the innermost first.
func GroupFolders(root fs.FS, controller string) []string {
	mounts := parseMounts(text(root, "proc/self/mountinfo"))
	var out []string
	for _, g := range cgroupParseGroups(text(root, "proc/self/cgroup")) {
		if g.controllers != nil && !slices.Contains(g.controllers, controller) {
			continue
		}
		for _, m := range mounts {
			if m.unified != (g.controllers == nil) || !m.unified && !slices.Contains(m.options, controller) {
				continue
			}
			for at := m.folder(g.path); ; at = path.Dir(at) {
				if _, err := fs.Stat(root, at); err == nil && !slices.Contains(out, at) {
					out = append(out, at)
				}
				if at == m.point || at == "." {
					break
				}
			}
		}
	}
	return out
}

// group is a line of /proc/[pid]/cgroup.
type group struct {
	controllers []string // nil: version 2
	path        string
}

// cgroupParseGroups reads /proc/[pid]/cgroup: "0::/a/b", "4:cpu,cpuacct:/a". Source: cgroups(7).
func cgroupParseGroups(file string) []group {
	var out []group
	for line := range strings.Lines(file) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || !path.IsAbs(f[2]) {
			continue
		}
		g := group{path: path.Clean(f[2])}
		if f[1] != "" {
			g.controllers = strings.Split(f[1], ",")
		}
		out = append(out, g)
	}
	return out
}

// mount is where groups can be seen.
type mount struct {
	unified bool     // version 2
	options []string // with the controllers of version 1
	root    string   // the group that is at point
	point   string   // in the tree
}

// parseMounts reads /proc/[pid]/mountinfo. Source: proc(5).
func parseMounts(file string) []mount {
	var out []mount
	for line := range strings.Lines(file) {
		before, after, ok := strings.Cut(line, " - ")
		f, of := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(of) < 3 || of[0] != "cgroup" && of[0] != "cgroup2" || !path.IsAbs(f[3]) || !path.IsAbs(f[4]) {
			continue
		}
		out = append(out, mount{
			unified: of[0] == "cgroup2", options: strings.Split(of[2], ","),
			root: f[3], point: strings.TrimPrefix(path.Clean(f[4]), "/"),
		})
	}
	return out
}

// folder is where a group is. Of a group that is not below the one that is mounted (a
// container without a cgroup namespace of its own sees such) only the mount can be seen.
func (m *mount) folder(group string) string {
	below, ok := strings.CutPrefix(group, strings.TrimSuffix(m.root, "/"))
	if !ok || below != "" && below[0] != '/' {
		return m.point
	}
	return path.Join(m.point, below)
}

// Memory is how much memory there is to be had, and what says so.
type Memory struct {
	Left  int64 // bytes
	Limit int64 // of which Left is left; 0: the system's memory is the limit
	File  string
}

// MemoryLeft is what this process can have without others, or itself, being killed for it:
// what the system has, or what the tightest of its groups leaves.
func MemoryLeft(root fs.FS) (m Memory, ok bool) {
	const meminfo = "proc/meminfo"
	if left, told := parseAvailable(text(root, meminfo)); told {
		m, ok = Memory{Left: left, File: "/" + meminfo}, true
	}
	for _, dir := range GroupFolders(root, "memory") {
		limit, left, limited := memoryOf(root, dir)
		if limited && (!ok || left < m.Left) {
			m, ok = Memory{Left: left, Limit: limit.bytes, File: "/" + limit.file}, true
		}
	}
	return m, ok
}

// memoryLimit is a limit, and where it stands.
type memoryLimit struct {
	bytes int64
	file  string
}

// noLimit is the value from which version 1's limit means none: the largest multiple of a page.
const noLimit = math.MaxInt64 &^ (1<<20 - 1)

// memoryOf is the limit of one group and what it leaves. Pages of files are counted as used and
// given up when memory is short, so they do not count here. memory.high is no limit: a process that exceeds it
// is slowed down, not killed. Source: Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst.
func memoryOf(root fs.FS, dir string) (limit memoryLimit, left int64, ok bool) {
	for _, names := range [][]string{
		{"memory.max", "memory.current", "inactive_file", "active_file", "slab_reclaimable"},
		{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file"},
	} {
		limit = memoryLimit{file: path.Join(dir, names[0])}
		var toldLimit, toldUsed bool
		limit.bytes, toldLimit = parseBytes(text(root, limit.file))
		used, toldUsed := parseBytes(text(root, path.Join(dir, names[1])))
		if !toldLimit || !toldUsed || limit.bytes >= noLimit {
			continue
		}
		for line := range strings.Lines(text(root, path.Join(dir, "memory.stat"))) {
			f := strings.Fields(line)
			if len(f) != 2 || !slices.Contains(names[2:], f[0]) {
				continue
			}
			if n, told := parseBytes(f[1]); told {
				used -= min(n, used)
			}
		}
		return limit, max(0, limit.bytes-used), true
	}
	return memoryLimit{}, 0, false
}

// parseBytes reads a number of bytes; "max" is no number.
func parseBytes(s string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	return n, err == nil && n >= 0
}

// parseAvailable finds MemAvailable in /proc/meminfo, in bytes.
// Source: Documentation/filesystems/proc.rst.
func parseAvailable(meminfo string) (int64, bool) {
	for line := range strings.Lines(meminfo) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "MemAvailable:" || f[2] != "kB" {
			continue
		}
		kib, err := strconv.ParseInt(f[1], 10, 53)
		return kib << 10, err == nil && kib >= 0
	}
	return 0, false
}

// text is a file of the tree without its last newline, "" where it cannot be read.
func text(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return string(bytes.TrimSuffix(b, []byte("\n")))
}
