package hosttree

import (
	"bytes"
	"io"
	"io/fs"
	"syscall"
)

// open implements Open by a tree's other methods: files are small, so a file is read, and a
// directory listed, when it is opened. t must have its own Stat.
func open(t Tree, name string) (fs.File, error) {
	info, err := fs.Stat(t, name)
	if err != nil {
		return nil, pathError("open", name, cause(err))
	}
	if info.IsDir() {
		entries, err := t.ReadDir(name)
		if err != nil {
			return nil, err
		}
		return &openDir{openFile{info: info, name: name, Reader: bytes.NewReader(nil)}, entries}, nil
	}
	data, err := t.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return &openFile{info: info, name: name, Reader: bytes.NewReader(data)}, nil
}

// openFile is a file that open read.
type openFile struct {
	*bytes.Reader
	info fs.FileInfo
	name string
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *openFile) Close() error               { return nil }

// openDir is a directory that open listed.
type openDir struct {
	openFile
	rest []fs.DirEntry
}

func (d *openDir) Read([]byte) (int, error) { return 0, pathError("read", d.name, syscall.EISDIR) }

// ReadDir implements fs.ReadDirFile.
func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		n = len(d.rest)
	} else if len(d.rest) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.rest))
	entries := d.rest[:n:n]
	d.rest = d.rest[n:]
	return entries, nil
}
