package hosttree

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Mem is a tree in memory. It may be read by several goroutines at once, but
// not while something is added.
type Mem struct {
	// Comment is the comment of the archive that the tree was read from.
	Comment string

	root  *node
	nodes int // all nodes but the root, parents made on the way included

	lastDir string // where something was added last: most that follows is there too
	last    *node
}

// node is one file, directory or link. It is its own fs.DirEntry and fs.FileInfo.
type node struct {
	name     string
	parent   *node
	kind     fs.FileMode // 0, fs.ModeDir or fs.ModeSymlink
	data     []byte
	target   string
	err      error // of reading or listing it
	children map[string]*node
}

var _ Tree = (*Mem)(nil)

// NewMem returns an empty tree.
func NewMem() *Mem {
	return &Mem{root: &node{name: ".", kind: fs.ModeDir}}
}

// AddFile adds a file and the directories above it. The tree keeps data.
// It is an error if the name is taken.
func (m *Mem) AddFile(name string, data []byte) error {
	return m.add(name, &node{data: data})
}

// AddDir adds a directory and those above it. A directory may be added again.
func (m *Mem) AddDir(name string) error {
	return m.add(name, &node{kind: fs.ModeDir})
}

// AddSymlink adds a symbolic link and the directories above it. The target is
// relative to the link's directory, or absolute from the tree's root; it need
// not exist.
func (m *Mem) AddSymlink(name, target string) error {
	return m.add(name, &node{kind: fs.ModeSymlink, target: target})
}

// AddUnreadable adds a file that is there, but whose reading fails with err
// (fs.ErrPermission, syscall.EINVAL, ErrNotCaptured, ...).
func (m *Mem) AddUnreadable(name string, err error) error {
	return m.add(name, &node{err: err})
}

// AddUnreadableDir adds a directory whose listing fails with err. Things can
// still be added below it.
func (m *Mem) AddUnreadableDir(name string, err error) error {
	return m.add(name, &node{kind: fs.ModeDir, err: err})
}

func (m *Mem) add(name string, n *node) error {
	switch err := checkName(name); {
	case err != nil:
		return pathError("add", name, err)
	case len(n.data) > MaxFileSize:
		return pathError("add", name, ErrTooLarge)
	case n.kind == fs.ModeSymlink && (n.target == "" || len(n.target) > maxName || strings.ContainsRune(n.target, 0)):
		return pathError("add", name, fmt.Errorf("link target %.80q: empty, too long, or with a zero byte", n.target))
	}
	if name == "." {
		if !n.IsDir() {
			return pathError("add", name, fs.ErrExist)
		}
		m.root.err = n.err
		return nil
	}
	end := strings.LastIndexByte(name, '/')
	if m.last != nil && end >= 0 && name[:end] == m.lastDir {
		return m.put(m.last, m.last.children[name[end+1:]], name[end+1:], name, n)
	}
	at, rest := m.root, name
	for {
		elem, tail, deeper := strings.Cut(rest, "/")
		next := at.children[elem]
		if !deeper {
			m.lastDir, m.last = name[:max(end, 0)], at
			return m.put(at, next, elem, name, n)
		}
		if next == nil {
			next = m.attach(at, elem, &node{kind: fs.ModeDir})
		}
		if !next.IsDir() {
			return pathError("add", name, fmt.Errorf("%s above it is not a directory", next.path()))
		}
		at, rest = next, tail
	}
}

// put adds a node below at; old is the node that has its name now.
func (m *Mem) put(at, old *node, elem, name string, n *node) error {
	switch {
	case old == nil:
		m.attach(at, elem, n)
	case old.IsDir() && n.IsDir():
		if n.err != nil {
			old.err = n.err
		}
	default:
		return pathError("add", name, fs.ErrExist)
	}
	return nil
}

func (m *Mem) attach(at *node, elem string, n *node) *node {
	n.name, n.parent = elem, at
	if at.children == nil {
		at.children = make(map[string]*node)
	}
	at.children[elem] = n
	m.nodes++
	return n
}

// find returns the node of a name. Links within the name are followed, one at the end only
// if follow is set.
func (m *Mem) find(op, name string, follow bool) (*node, error) {
	if !fs.ValidPath(name) {
		return nil, pathError(op, name, fs.ErrInvalid)
	}
	at, rest, links := m.root, name, 0
	for rest != "" {
		var elem string
		elem, rest, _ = strings.Cut(rest, "/")
		if !at.IsDir() {
			return nil, pathError(op, name, syscall.ENOTDIR)
		}
		switch elem {
		case "", ".":
			continue
		case "..":
			if at == m.root {
				return nil, pathError(op, name, ErrEscapes)
			}
			at = at.parent
			continue
		}
		next := at.children[elem]
		if next == nil {
			return nil, pathError(op, name, fs.ErrNotExist)
		}
		if next.kind != fs.ModeSymlink || rest == "" && !follow {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return nil, pathError(op, name, ErrLoop)
		}
		if next.target[0] == '/' {
			at = m.root
		}
		rest = followedBy(next.target, rest)
	}
	return at, nil
}

// ReadFile returns a copy of a file's content.
func (m *Mem) ReadFile(name string) ([]byte, error) {
	n, err := m.find("open", name, true)
	if err != nil {
		return nil, err
	}
	if n.IsDir() {
		return nil, pathError("read", name, syscall.EISDIR)
	}
	if n.err != nil {
		return nil, pathError("open", name, n.err)
	}
	return append(make([]byte, 0, len(n.data)), n.data...), nil
}

// ReadDir lists a directory, sorted by name.
func (m *Mem) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := m.find("open", name, true)
	if err != nil {
		return nil, err
	}
	if !n.IsDir() {
		return nil, pathError("readdir", name, syscall.ENOTDIR)
	}
	if n.err != nil {
		return nil, pathError("open", name, n.err)
	}
	return n.entries(), nil
}

func (n *node) entries() []fs.DirEntry {
	entries := make([]fs.DirEntry, 0, len(n.children))
	for _, c := range n.children {
		entries = append(entries, c)
	}
	sortEntries(entries)
	return entries
}

func sortEntries(entries []fs.DirEntry) {
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
}

// ReadLink gives a link's target as it was written.
func (m *Mem) ReadLink(name string) (string, error) {
	n, err := m.find("readlink", name, false)
	if err != nil {
		return "", err
	}
	if n.kind != fs.ModeSymlink {
		return "", pathError("readlink", name, syscall.EINVAL)
	}
	return n.target, nil
}

// Lstat describes a file, directory or link without following a link at the end.
func (m *Mem) Lstat(name string) (fs.FileInfo, error) { return m.stat("lstat", name, false) }

// Stat describes a file or directory, following links.
func (m *Mem) Stat(name string) (fs.FileInfo, error) { return m.stat("stat", name, true) }

func (m *Mem) stat(op, name string, follow bool) (fs.FileInfo, error) {
	n, err := m.find(op, name, follow)
	if err != nil {
		return nil, err
	}
	return n, nil
}

// Open opens a file or directory for reading.
func (m *Mem) Open(name string) (fs.File, error) { return open(m, name) }

func (m *Mem) realPath(name string) (string, error) {
	n, err := m.find("realpath", name, true)
	if err != nil {
		return "", err
	}
	return n.path(), nil
}

// path is the node's name in the tree, through no link.
func (n *node) path() string {
	if n.parent == nil {
		return "."
	}
	var elems []string
	for ; n.parent != nil; n = n.parent {
		elems = append(elems, n.name)
	}
	slices.Reverse(elems)
	return strings.Join(elems, "/")
}

// The methods of fs.DirEntry and fs.FileInfo.

func (n *node) Name() string               { return n.name }
func (n *node) IsDir() bool                { return n.kind == fs.ModeDir }
func (n *node) Type() fs.FileMode          { return n.kind }
func (n *node) Info() (fs.FileInfo, error) { return n, nil }
func (n *node) ModTime() time.Time         { return time.Time{} }
func (n *node) Sys() any                   { return nil }

func (n *node) Size() int64 {
	if n.kind == fs.ModeSymlink {
		return int64(len(n.target))
	}
	return int64(len(n.data))
}

func (n *node) Mode() fs.FileMode {
	switch {
	case n.err != nil:
		return n.kind
	case n.kind == fs.ModeSymlink:
		return n.kind | 0o777
	case n.kind == fs.ModeDir:
		return n.kind | 0o555
	}
	return 0o444
}
