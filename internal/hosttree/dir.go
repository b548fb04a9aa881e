package hosttree

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// ErrNotHostTree is the error for a directory without a host's files.
var ErrNotHostTree = errors.New("no sys directory below it")

// Dir is a directory on disk as a tree: "/" of the live machine, or a captured
// directory. Nothing outside the directory is ever read. It must not be used
// after Close.
type Dir struct {
	path string
	in   backend
}

// backend opens what is below one directory. It may refuse a path with an absolute link: crossed
// recognizes that error, and the path is then tried again with its links resolved.
type backend interface {
	// open opens a file or directory for reading, and does not wait for the other end of a FIFO.
	open(name string) (*os.File, error)
	// readFile reads a regular file.
	readFile(name string) ([]byte, error)
	readLink(name string) (string, error)
	stat(name string, follow bool) (fs.FileInfo, error)
	crossed(err error) bool
	close() error
}

var _ Tree = (*Dir)(nil)

// OpenDir opens a directory that contains a host's sys, proc or topoctl directory. The error
// suggests the directory that was probably meant.
func OpenDir(dir string) (*Dir, error) {
	if err := checkHostDir(dir); err != nil {
		return nil, err
	}
	in, err := newBackend(dir)
	if err != nil {
		return nil, pkgerr.Errorf("hosttree", "%s: %w", dir, cause(err))
	}
	return &Dir{path: dir, in: in}, nil
}

// checkHostDir says whether a directory looks like a host's root.
func checkHostDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return pkgerr.Errorf("hosttree", "%s: %w", dir, cause(err))
	}
	if !info.IsDir() {
		return pkgerr.Errorf("hosttree", "%s: not a directory: %w", dir, ErrNotHostTree)
	}
	if hasHostFiles(dir) {
		return nil
	}
	hint := "pass the directory that contains sys/"
	if isDirAt(dir, "class") && isDirAt(dir, "devices") {
		hint = "this looks like the sys directory itself; pass the one above, " + filepath.Dir(filepath.Clean(dir))
	} else if sub := onlyHostBelow(dir); sub != "" {
		hint += ", perhaps " + sub
	}
	return pkgerr.Errorf("hosttree", "%s: %w; %s", dir, ErrNotHostTree, hint)
}

func hasHostFiles(dir string) bool {
	return isDirAt(dir, "sys") || isDirAt(dir, "proc") || isDirAt(dir, "topoctl")
}

func isDirAt(dir, name string) bool {
	info, err := os.Stat(filepath.Join(dir, name))
	return err == nil && info.IsDir()
}

// onlyHostBelow is the only directory below dir with a host's files, "" if there is not
// exactly one.
func onlyHostBelow(dir string) string {
	f, err := os.Open(dir)
	if err != nil {
		return ""
	}
	defer f.Close()
	const most = 100 // more than a person would unpack into one directory
	names, err := f.Readdirnames(most)
	if err != nil {
		return ""
	}
	found := ""
	for _, name := range names {
		if sub := filepath.Join(dir, name); isDirAt(dir, name) && hasHostFiles(sub) {
			if found != "" {
				return ""
			}
			found = sub
		}
	}
	return found
}

// Path is the directory as passed to OpenDir.
func (d *Dir) Path() string { return d.path }

// Close closes the directory.
func (d *Dir) Close() error { return d.in.close() }

// ReadFile reads a regular file of at most MaxFileSize bytes.
func (d *Dir) ReadFile(name string) ([]byte, error) {
	return within(d, "open", name, true, d.in.readFile)
}

// regular opens a file and refuses all but regular ones.
func regular(in backend, name string) (*os.File, error) {
	f, err := in.open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = checkFile(info.Mode().Type())
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func checkFile(kind fs.FileMode) error {
	switch {
	case kind.IsDir():
		return syscall.EISDIR
	case kind != 0:
		return ErrNotRegular
	}
	return nil
}

// ReadDir lists a directory, sorted by name.
func (d *Dir) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := within(d, "readdir", name, true, func(name string) ([]fs.DirEntry, error) {
		f, err := d.in.open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return f.ReadDir(-1)
	})
	if err != nil {
		return nil, err
	}
	for i, e := range entries { // the system's own entries look at the directory by its name outside
		entries[i] = entry{e, d, childName(name, e.Name())}
	}
	sortEntries(entries)
	return entries, nil
}

// entry is an entry of a listed directory.
type entry struct {
	fs.DirEntry
	tree *Dir
	name string
}

func (e entry) Info() (fs.FileInfo, error) { return e.tree.Lstat(e.name) }

// ReadLink gives a link's target as it was written.
func (d *Dir) ReadLink(name string) (string, error) {
	return within(d, "readlink", name, false, d.in.readLink)
}

// Lstat describes a file, directory or link without following a link at the end.
func (d *Dir) Lstat(name string) (fs.FileInfo, error) {
	return within(d, "lstat", name, false, func(name string) (fs.FileInfo, error) { return d.in.stat(name, false) })
}

// Stat describes a file or directory, following links.
func (d *Dir) Stat(name string) (fs.FileInfo, error) {
	return within(d, "stat", name, true, func(name string) (fs.FileInfo, error) { return d.in.stat(name, true) })
}

// Open opens a regular file or a directory for reading. A file may be of any size and is not
// read before the caller does.
func (d *Dir) Open(name string) (fs.File, error) {
	f, err := within(d, "open", name, true, func(name string) (*os.File, error) { return regular(d.in, name) })
	if errors.Is(err, syscall.EISDIR) {
		return open(d, name)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// within runs one operation on one name: first with the name resolved by the backend, then
// with its links resolved here.
func within[T any](d *Dir, op, name string, follow bool, do func(string) (T, error)) (T, error) {
	var none T
	if err := checkName(name); err != nil {
		return none, pathError(op, name, err)
	}
	v, err := do(name)
	if err != nil && d.in.crossed(err) {
		var real string
		if real, err = resolve(name, follow, d); err == nil {
			v, err = do(real)
		}
	}
	if err != nil {
		return none, pathError(op, name, cause(err))
	}
	return v, nil
}

func (d *Dir) realPath(name string) (string, error) {
	real, err := resolve(name, true, d)
	if err != nil {
		return "", pathError("realpath", name, cause(err))
	}
	return real, nil
}

// link and isDir implement links.
func (d *Dir) link(name string) (string, error) {
	target, err := d.in.readLink(name)
	if errors.Is(err, syscall.EINVAL) {
		return "", nil
	}
	return target, err
}

func (d *Dir) isDir(name string) bool {
	info, err := d.in.stat(name, false)
	return err == nil && info.IsDir()
}
