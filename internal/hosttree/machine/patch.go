package machine

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/topoctl/topoctl/internal/hosttree"
)

// patched applies the patches. All paths are resolved in the tree before the first
// patch.
func (e *expansion) patched() (*hosttree.Mem, error) {
	m, err := e.tree()
	if err != nil || len(e.Patches) == 0 {
		return m, err
	}
	for _, c := range e.Patches {
		if c.word == "change" { // it was, before expansion
			continue
		}
		names, err := patchedNames(m, c)
		if err == nil && c.word == "move" && len(names) > 1 {
			err = errors.New("matches several directories")
		}
		if err != nil {
			return nil, fmt.Errorf("machine: line %d, column %d: %s %s: %w", c.From.Line, c.From.Column, c.word, c.path, err)
		}
		e.patch(c, names)
	}
	return e.tree()
}

var errnoByName = map[string]syscall.Errno{
	"EACCES": syscall.EACCES, "EINVAL": syscall.EINVAL, "EIO": syscall.EIO, "ENODEV": syscall.ENODEV,
}

// patch does one patch to the names that its path stands for.
func (e *expansion) patch(c *patch, names []string) {
	switch c.word {
	case "set":
		var data []byte
		if c.To != "" {
			data = []byte(c.To + "\n")
		}
		for _, name := range names {
			e.set(name, entry{data: data})
		}
	case "link":
		for _, name := range names {
			e.set(name, entry{target: c.To})
		}
	case "unreadable":
		dirs := e.directories()
		for _, name := range names {
			e.set(name, entry{fail: errnoByName[c.Error], dir: dirs[name]})
		}
	case "remove":
		gone := map[string]bool{}
		for _, name := range names {
			gone[name] = true
		}
		e.entries = slices.DeleteFunc(e.entries, func(x entry) bool {
			for end := len(x.name); end > 0; end = strings.LastIndexByte(x.name[:end], '/') {
				if gone[x.name[:end]] {
					return true
				}
			}
			return false
		})
		clear(e.at)
		for i, x := range e.entries {
			e.at[x.name] = i
		}
	case "move":
		e.move(names[0], strings.TrimPrefix(c.To, "/"))
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

// move puts what is at a name, and all below, at another place. Links to it follow.
func (e *expansion) move(from, to string) {
	moved := func(name string) string {
		if rest, ok := strings.CutPrefix(name, from); ok && (rest == "" || rest[0] == '/') {
			return to + rest
		}
		return name
	}
	was := e.entries
	e.entries, e.at, e.bytes = nil, make(map[string]int, len(was)), 0
	for _, x := range was {
		x.to = moved(x.to)
		e.add(moved(x.name), x)
	}
}

// patchedNames gives the real names that a patch's path stands for. A path
// without "*" may name a new file in a directory that is there.
func patchedNames(m *hosttree.Mem, c *patch) ([]string, error) {
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
				real, err := resolve(m, path.Join(dir, name), last, c.word)
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
			return nil, errors.New("matches too many files")
		}
	}
	if len(dirs) == 0 {
		return nil, errors.New("nothing matches")
	}
	return dirs, nil
}

// resolve resolves one element. At the end, remove and link mean the name itself,
// the others the file that it leads to.
func resolve(m *hosttree.Mem, name string, last bool, word string) (string, error) {
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
