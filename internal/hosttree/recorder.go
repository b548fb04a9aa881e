package hosttree

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"syscall"
)

// Recorder is a tree that records what is read from it: contents, listings, links (also
// those within a path), and failed reads. Recorded returns a tree that behaves the same.
type Recorder struct {
	tree Tree

	mu   sync.Mutex
	seen map[string]*record // by name without links
}

// record is what was recorded of one name.
type record struct {
	kind   fs.FileMode // type bits
	target string      // of a link
	data   []byte
	err    error // of reading or listing it
	read   bool  // data or err are valid
}

var _ Tree = (*Recorder)(nil)

// NewRecorder wraps a tree.
func NewRecorder(t Tree) *Recorder {
	return &Recorder{tree: t, seen: make(map[string]*record)}
}

// ReadFile reads a file and remembers its content, or why it could not be read.
func (r *Recorder) ReadFile(name string) ([]byte, error) {
	data, err := r.tree.ReadFile(name)
	if real, ok := r.follow(name, true); ok {
		r.keep(real, slices.Clone(data), err)
	}
	return data, err
}

// ReadDir lists a directory and remembers its entries with their types, and
// the targets of those that are links.
func (r *Recorder) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := r.tree.ReadDir(name)
	real, ok := r.follow(name, true)
	if !ok {
		return entries, err
	}
	r.keep(real, nil, err)
	for _, e := range entries {
		_, _ = r.note(childName(real, e.Name()), e.Type()) // a link that has vanished is left out
	}
	return entries, err
}

// ReadLink reads a link and remembers its target.
func (r *Recorder) ReadLink(name string) (string, error) {
	r.follow(name, false)
	return r.tree.ReadLink(name)
}

// Lstat describes a name and remembers that it is there.
func (r *Recorder) Lstat(name string) (fs.FileInfo, error) {
	r.follow(name, false)
	return r.tree.Lstat(name)
}

// Stat describes what a name leads to and remembers that it is there.
func (r *Recorder) Stat(name string) (fs.FileInfo, error) {
	r.follow(name, true)
	return fs.Stat(r.tree, name)
}

// Open opens a file or directory; its whole content is remembered.
func (r *Recorder) Open(name string) (fs.File, error) { return open(r, name) }

func (r *Recorder) realPath(name string) (string, error) {
	r.follow(name, true)
	return RealPath(r.tree, name)
}

// follow records every element of a path and returns the name without links. It is false
// for a path that leads nowhere.
func (r *Recorder) follow(name string, end bool) (string, bool) {
	real, err := resolve(name, end, r)
	if err == nil && !end && real != "." {
		_, err = r.look(real)
	}
	return real, err == nil
}

// link and isDir implement links.
func (r *Recorder) link(name string) (string, error) {
	rec, err := r.look(name)
	if err != nil {
		return "", err
	}
	return rec.target, nil
}

func (r *Recorder) isDir(name string) bool {
	rec, err := r.look(name)
	return err == nil && rec.kind == fs.ModeDir
}

// look returns the record of a name that contains no link before its end.
func (r *Recorder) look(name string) (*record, error) {
	r.mu.Lock()
	rec, known := r.seen[name]
	r.mu.Unlock()
	if known {
		return rec, nil
	}
	info, err := r.tree.Lstat(name)
	if err != nil {
		return nil, err
	}
	return r.note(name, info.Mode().Type())
}

// note records that a name exists, with a link's target.
func (r *Recorder) note(name string, kind fs.FileMode) (*record, error) {
	rec := &record{kind: kind}
	if kind == fs.ModeSymlink {
		target, err := r.tree.ReadLink(name)
		if err != nil {
			return nil, err
		}
		rec.target = target
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.seen[name]; ok {
		return known, nil
	}
	r.seen[name] = rec
	return rec, nil
}

// keep records the result of a read. The last result counts, but a failure does not replace
// content, and reading a directory or listing a file is not recorded.
func (r *Recorder) keep(name string, data []byte, err error) {
	if errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ENOTDIR) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.seen[name]
	if rec == nil {
		rec = &record{kind: fs.ModeDir} // only the root has no record yet
		r.seen[name] = rec
	}
	if err != nil && rec.read && rec.err == nil {
		return
	}
	rec.data, rec.err, rec.read = data, nil, true
	if err != nil {
		rec.data, rec.err = nil, cause(err)
	}
}

// Recorded returns what was recorded. A file that was listed or described but never read
// exists, and reading it fails with ErrNotCaptured. Devices, sockets and FIFOs
// become such files.
func (r *Recorder) Recorded() *Mem {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := NewMem()
	for _, name := range slices.Sorted(maps.Keys(r.seen)) {
		// On a live machine a name may be a file now and a directory later;
		// what does not fit below the first is left out.
		_ = m.add(name, r.seen[name].node())
	}
	return m
}

func (rec *record) node() *node {
	n := &node{kind: rec.kind, target: rec.target, data: rec.data, err: rec.err}
	if n.kind != fs.ModeDir && n.kind != fs.ModeSymlink {
		n.kind = 0
		if !rec.read {
			n.err = ErrNotCaptured
		}
	}
	return n
}
