package machine

import (
	"errors"
	"fmt"
	"path"
	"slices"
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
	e := &expansion{s: s, entries: map[string]entry{}}
	e.host()
	e.cpus()
	e.nodes()
	e.pciTree()
	e.networks()
	e.infiniband()
	e.nvmes()
	e.gpus()
	e.answers()
	return e.patched()
}

// expansion collects the entries of a tree, so that patches can change them
// before the tree is made.
type expansion struct {
	s       *Spec
	entries map[string]entry
	names   []string // of the entries, in the order in which they came: directory by directory, mostly
	bytes   int
	err     error
}

type entry struct {
	data   []byte
	target string        // a link to this, as it stands
	to     string        // a relative link to this, from the tree's root
	dir    bool          // a directory, empty or unreadable
	fail   syscall.Errno // reading gives this
}

// set adds an entry or replaces one.
func (e *expansion) set(name string, x entry) {
	e.bytes += len(x.data) + len(name)
	if len(e.entries) >= maxEntries || e.bytes > maxBytes {
		e.err = fmt.Errorf("machine: %s: expands to more than %d files or %d MiB", e.s.name, maxEntries, maxBytes>>20)
		return
	}
	if _, taken := e.entries[name]; !taken {
		e.names = append(e.names, name)
	}
	e.entries[name] = x
}

// add adds an entry whose name must be free.
func (e *expansion) add(name string, x entry) {
	if old, taken := e.entries[name]; taken && !(old.dir && x.dir) && e.err == nil {
		e.err = fmt.Errorf("machine: %s: %s stands for two things", e.s.name, name)
	}
	e.set(name, x)
}

// file adds a file of one line, a text or a number, as most files of sysfs are.
func (e *expansion) file(name string, line any) { e.raw(name, fmt.Appendln(nil, line)) }

// files adds files of one line below a directory: names, each followed by its line.
func (e *expansion) files(dir string, namesAndLines ...any) {
	for i := 0; i < len(namesAndLines); i += 2 {
		e.file(dir+"/"+namesAndLines[i].(string), namesAndLines[i+1])
	}
}

func (e *expansion) raw(name string, data []byte) { e.add(name, entry{data: data}) }

// link adds a link at name to target, both from the tree's root.
func (e *expansion) link(name, target string) { e.add(name, entry{to: target}) }

// inClass makes a directory an entry of a class or bus: "sys/class/net".
func (e *expansion) inClass(class, entry, dir string) {
	e.link(dir+"/subsystem", class)
	if class == "sys/bus/pci" || class == "sys/bus/virtio" {
		class += "/devices"
	}
	e.link(class+"/"+entry, dir)
}

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

// tree makes the tree of the entries.
func (e *expansion) tree() (*hosttree.Mem, error) {
	if e.err != nil {
		return nil, e.err
	}
	m := hosttree.NewMem()
	for _, name := range e.names {
		x := e.entries[name]
		var err error
		switch {
		case x.fail != 0 && x.dir:
			err = m.AddUnreadableDir(name, x.fail)
		case x.fail != 0:
			err = m.AddUnreadable(name, x.fail)
		case x.dir:
			err = m.AddDir(name)
		case x.target != "":
			err = m.AddSymlink(name, x.target)
		case x.to != "":
			err = m.AddSymlink(name, relative(name, x.to))
		default:
			err = m.AddFile(name, x.data)
		}
		if err != nil {
			return nil, fmt.Errorf("machine: %s: %w", e.s.name, err)
		}
	}
	return m, nil
}

// patched applies the patches. All paths are resolved in the tree before the first
// patch.
func (e *expansion) patched() (*hosttree.Mem, error) {
	m, err := e.tree()
	if err != nil || len(e.s.patches) == 0 {
		return m, err
	}
	for _, c := range e.s.patches {
		names, err := patchedNames(m, c)
		if err == nil && c.word == "move" && len(names) > 1 {
			err = errors.New("stands for several directories")
		}
		if err != nil {
			return nil, fmt.Errorf("machine: line %d: %s %s: %w", c.line, c.word, c.path, err)
		}
		e.patch(c, names)
	}
	return e.tree()
}

var errnoByName = map[string]syscall.Errno{
	"EACCES": syscall.EACCES, "EINVAL": syscall.EINVAL, "EIO": syscall.EIO, "ENODEV": syscall.ENODEV,
}

// patch does one patch to the names that its path stands for.
func (e *expansion) patch(c patch, names []string) {
	switch c.word {
	case "set":
		var data []byte
		if c.operand != "" {
			data = []byte(c.operand + "\n")
		}
		for _, name := range names {
			e.set(name, entry{data: data})
		}
	case "link":
		for _, name := range names {
			e.set(name, entry{target: c.operand})
		}
	case "unreadable":
		directories := e.directories()
		for _, name := range names {
			e.set(name, entry{fail: errnoByName[c.operand], dir: directories[name]})
		}
	case "remove":
		gone := map[string]bool{}
		for _, name := range names {
			gone[name] = true
		}
		e.names = slices.DeleteFunc(e.names, func(name string) bool {
			for end := len(name); end > 0; end = strings.LastIndexByte(name[:end], '/') {
				if gone[name[:end]] {
					delete(e.entries, name)
					return true
				}
			}
			return false
		})
	case "move":
		e.move(names[0], strings.TrimPrefix(c.operand, "/"))
	}
}

// directories are the names that have something below them.
func (e *expansion) directories() map[string]bool {
	dirs := map[string]bool{}
	for name := range e.entries {
		for dir := path.Dir(name); dir != "." && !dirs[dir]; dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	return dirs
}

// move puts what is at a name, and all below, at another place. Links to it follow.
func (e *expansion) move(from, to string) {
	moved := func(name string) string {
		if rest, ok := strings.CutPrefix(name, from); ok && (rest == "" || rest[0] == '/') {
			return to + rest
		}
		return name
	}
	names, was := e.names, e.entries
	e.names, e.entries, e.bytes = nil, make(map[string]entry, len(was)), 0
	for _, name := range names {
		x := was[name]
		x.to = moved(x.to)
		e.add(moved(name), x)
	}
}

// patchedNames gives the real names that a patch's path stands for. A path
// without "*" may name a new file in a directory that is there.
func patchedNames(m *hosttree.Mem, c patch) ([]string, error) {
	dirs, several := []string{"."}, strings.Contains(c.path, "*")
	elems := strings.Split(c.path, "/")
	for i, elem := range elems {
		last := i == len(elems)-1
		var next []string
		for _, dir := range dirs {
			names := []string{elem}
			if strings.Contains(elem, "*") {
				names = match(m, dir, elem)
			}
			for _, name := range names {
				real, err := step(m, path.Join(dir, name), last, c.word)
				if err != nil && last && c.word == "set" && !several {
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
