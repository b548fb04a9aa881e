package machine

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"syscall"

	"github.com/topoctl/topoctl/internal/base/hosttree"
)

// Limits of an expanded tree. The largest machine that we know, 72 GPUs in one
// host, has about 60,000 files.
const (
	maxEntries = 500_000
	maxBytes   = 512 << 20
)

// Tree expands the machine to its files in /sys and /proc, and the recorded
// answers of NVML and netlink. Two expansions of one spec are equal.
func (s *Spec) Tree() (*hosttree.Mem, error) {
	if s.base != "" {
		return nil, fmt.Errorf("machine: %s is a variant of %s, which is not loaded", s.name, s.base)
	}
	e := &expansion{s: s}
	e.host()
	e.cpus()
	e.nodes()
	e.pciTree()
	e.netdevs()
	e.infiniband()
	e.nvmes()
	e.gpus()
	e.answers()
	if e.err != nil {
		return nil, e.err
	}
	return e.patched()
}

// expansion collects the entries of a tree, so that patches can change them
// before the tree is made.
type expansion struct {
	s       *Spec
	entries []entry
	bytes   int
	err     error
}

type entry struct {
	name   string
	data   []byte
	target string        // a link to this, as it stands
	to     string        // a relative link to this, from the tree's root
	dir    bool          // a directory, empty or unreadable
	fail   syscall.Errno // reading gives this
}

func (e *expansion) put(x entry) {
	e.bytes += len(x.data) + len(x.name)
	if len(e.entries) >= maxEntries || e.bytes > maxBytes {
		e.err = fmt.Errorf("machine: %s: expands to more than %d files or %d MiB", e.s.name, maxEntries, maxBytes>>20)
		return
	}
	e.entries = append(e.entries, x)
}

// file adds a file that holds one line, as most of sysfs.
func (e *expansion) file(name, line string) { e.raw(name, []byte(line+"\n")) }

func (e *expansion) raw(name string, data []byte) { e.put(entry{name: name, data: data}) }

func (e *expansion) number(name string, n int) { e.file(name, strconv.Itoa(n)) }

func (e *expansion) dir(name string) { e.put(entry{name: name, dir: true}) }

// link adds a link at name to target, both from the tree's root.
func (e *expansion) link(name, target string) { e.put(entry{name: name, to: target}) }

// relative is the target of a link as sysfs has it: from the link's directory.
func relative(name, target string) string {
	dir := name[:strings.LastIndexByte(name, '/')+1]
	common := 0 // length of the directories that both share
	for i := 0; i < len(dir) && i < len(target) && dir[i] == target[i]; i++ {
		if dir[i] == '/' {
			common = i + 1
		}
	}
	return strings.Repeat("../", strings.Count(dir[common:], "/")) + target[common:]
}

// mem makes the tree of the entries.
func (e *expansion) mem() (*hosttree.Mem, error) {
	m := hosttree.NewMem()
	for _, x := range e.entries {
		var err error
		switch {
		case x.name == "": // removed
		case x.fail != 0 && x.dir:
			err = m.AddUnreadableDir(x.name, x.fail)
		case x.fail != 0:
			err = m.AddUnreadable(x.name, x.fail)
		case x.dir:
			err = m.AddDir(x.name)
		case x.target != "":
			err = m.AddSymlink(x.name, x.target)
		case x.to != "":
			err = m.AddSymlink(x.name, relative(x.name, x.to))
		default:
			err = m.AddFile(x.name, x.data)
		}
		if err != nil {
			return nil, fmt.Errorf("machine: %s: %w", e.s.name, err)
		}
	}
	return m, nil
}

// patched applies the patches. Paths are resolved in the tree as it is before
// the first of them, and in what earlier patches wrote by its plain name.
func (e *expansion) patched() (*hosttree.Mem, error) {
	m, err := e.mem()
	if err != nil || len(e.s.patches) == 0 {
		return m, err
	}
	at := make(map[string]int, len(e.entries))
	for i, x := range e.entries {
		at[x.name] = i
	}
	for _, c := range e.s.patches {
		names, err := expandPath(m, c.path, c.word)
		if err == nil && c.word == "move" && len(names) > 1 {
			err = errors.New("stands for several directories")
		}
		if err != nil {
			return nil, fmt.Errorf("machine: line %d: %s %s: %w", c.line, c.word, c.path, err)
		}
		e.apply(c, names, at)
	}
	if e.err != nil {
		return nil, e.err
	}
	return e.mem()
}

var errnoByName = map[string]syscall.Errno{
	"EACCES": syscall.EACCES, "EINVAL": syscall.EINVAL, "EIO": syscall.EIO, "ENODEV": syscall.ENODEV,
}

// apply does one patch to the names that its path stands for.
func (e *expansion) apply(c patch, names []string, at map[string]int) {
	switch c.word {
	case "remove":
		e.remove(names, at)
		return
	case "move":
		e.move(names[0], strings.TrimPrefix(c.operand, "/"), at)
		return
	}
	dirs := map[string]bool{}
	if c.word == "unreadable" {
		dirs = e.directories()
	}
	for _, name := range names {
		x := entry{name: name}
		switch c.word {
		case "set":
			if x.data = []byte(c.operand); c.operand != "" {
				x.data = append(x.data, '\n')
			}
		case "link":
			x.target = c.operand
		case "unreadable":
			x.fail, x.dir = errnoByName[c.operand], dirs[name]
		}
		if i, there := at[name]; there {
			e.entries[i] = x
			continue
		}
		if e.put(x); e.err != nil {
			return
		}
		at[name] = len(e.entries) - 1
	}
}

// directories are the names that have something below them.
func (e *expansion) directories() map[string]bool {
	dirs := map[string]bool{}
	for _, x := range e.entries {
		for dir := path.Dir(x.name); dir != "." && !dirs[dir]; dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	return dirs
}

// remove takes names, and all below them, out of the tree.
func (e *expansion) remove(names []string, at map[string]int) {
	gone := make(map[string]bool, len(names))
	for _, name := range names {
		gone[name] = true
	}
	for i, x := range e.entries {
		for dir := x.name; dir != "." && dir != ""; dir = path.Dir(dir) {
			if gone[dir] {
				delete(at, x.name)
				e.entries[i] = entry{}
				break
			}
		}
	}
}

func inside(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }

// move puts what is at name, and all below, at another place. Links to it follow.
func (e *expansion) move(name, to string, at map[string]int) {
	for i := range e.entries {
		x := &e.entries[i]
		if inside(x.to, name) {
			x.to = to + x.to[len(name):]
		}
		if inside(x.name, name) {
			delete(at, x.name)
			x.name = to + x.name[len(name):]
			at[x.name] = i
		}
	}
}

// expandPath gives the real names that a patch's path stands for. A path
// without "*" may name a new file in a directory that is there.
func expandPath(m *hosttree.Mem, pattern, word string) ([]string, error) {
	dirs, several := []string{"."}, strings.Contains(pattern, "*")
	elems := strings.Split(pattern, "/")
	for i, elem := range elems {
		last := i == len(elems)-1
		var next []string
		for _, dir := range dirs {
			names := []string{elem}
			if strings.Contains(elem, "*") {
				names = match(m, dir, elem)
			}
			for _, name := range names {
				real, err := step(m, path.Join(dir, name), last, word)
				if err != nil && last && word == "set" && !several {
					real, err = path.Join(dir, name), nil // a new file
				}
				switch {
				case err == nil:
					next = append(next, real)
				case !several:
					return nil, err
				}
			}
		}
		if dirs = next; len(dirs) > maxEntries {
			return nil, errors.New("stands for too many files")
		}
	}
	if len(dirs) == 0 {
		return nil, errors.New("nothing has such a name")
	}
	return dirs, nil
}

// step resolves one element. At the end, remove and link mean the name itself,
// the others the file that it leads to.
func step(m *hosttree.Mem, name string, last bool, word string) (string, error) {
	if last && (word == "remove" || word == "link") {
		_, err := m.Lstat(name)
		if err != nil && word == "remove" {
			return "", err
		}
		return name, nil
	}
	return hosttree.RealPath(m, name)
}

func match(m *hosttree.Mem, dir, pattern string) []string {
	entries, err := m.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, x := range entries {
		if ok, err := path.Match(pattern, x.Name()); err == nil && ok {
			out = append(out, x.Name())
		}
	}
	return out
}
