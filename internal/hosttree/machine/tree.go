package machine

import (
	"fmt"
	"path"
	"strings"
	"syscall"

	"github.com/topoctl/topoctl/internal/hosttree"
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
	if s.Base != "" {
		return nil, fmt.Errorf("machine: %s is a variant of %s, which is not loaded", s.Name, s.Base)
	}
	e := &expansion{Spec: s, at: map[string]int{}}
	e.addHost()
	e.addCPUs()
	e.addNUMANodes()
	e.addPCI()
	e.addNetworks()
	e.addRDMA()
	e.addGPUs()
	e.addAnswers()
	return e.patched()
}

// expansion collects the entries of a tree, so that patches can change them
// before the tree is made.
type expansion struct {
	*Spec
	entries []entry        // in the order in which they came: directory by directory, mostly
	at      map[string]int // where in entries, by name
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

// raw is a file of these bytes.
func raw(format string, args ...any) entry { return entry{data: fmt.Appendf(nil, format, args...)} }

// linkTo is a link to a place, named from the tree's root.
func linkTo(target string) entry { return entry{to: target} }

// unlessEmpty is a file's line, or no file where there is nothing to say.
func unlessEmpty(line string) any {
	if line == "" {
		return nil
	}
	return line
}

// set adds an entry or replaces one.
func (e *expansion) set(name string, x entry) {
	if i, taken := e.at[name]; taken {
		e.bytes += len(x.data)
		x.name = name
		e.entries[i] = x
		return
	}
	e.append(name, x)
}

func (e *expansion) append(name string, x entry) {
	e.bytes += len(x.data) + len(name)
	if len(e.entries) >= maxEntries || e.bytes > maxBytes {
		e.err = fmt.Errorf("machine: %s: expands to more than %d files or %d MiB", e.Name, maxEntries, maxBytes>>20)
		return
	}
	x.name = name
	e.at[name] = len(e.entries)
	e.entries = append(e.entries, x)
}

// add adds an entry whose name must be free.
func (e *expansion) add(name string, x entry) {
	i, taken := e.at[name]
	if !taken {
		e.append(name, x)
		return
	}
	if !(e.entries[i].dir && x.dir) && e.err == nil {
		e.err = fmt.Errorf("machine: %s: %s is defined twice", e.Name, name)
	}
	e.set(name, x)
}

// put adds what is in a directory: names, each followed by an entry, or by the one line
// of a file, a text or a number, as most files of sysfs are. What is nil is left out.
func (e *expansion) put(dir string, namesAndValues ...any) {
	for i := 0; i < len(namesAndValues); i += 2 {
		name := dir + "/" + namesAndValues[i].(string)
		switch value := namesAndValues[i+1].(type) {
		case nil:
		case entry:
			e.add(name, value)
		default:
			e.add(name, entry{data: fmt.Appendln(nil, value)})
		}
	}
}

// device adds the directory of a device, which is an entry of a class or bus: "sys/class/net".
func (e *expansion) device(class, dir string, namesAndValues ...any) {
	e.put(dir, namesAndValues...)
	e.put(dir, "subsystem", linkTo(class))
	if strings.HasPrefix(class, "sys/bus/") {
		class += "/devices"
	}
	e.put(class, path.Base(dir), linkTo(dir))
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
	for _, x := range e.entries {
		name := x.name
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
			return nil, fmt.Errorf("machine: %s: %w", e.Name, err)
		}
	}
	return m, nil
}
