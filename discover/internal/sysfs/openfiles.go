package sysfs

import (
	"os"
	"sync/atomic"

	"github.com/topoctl/topoctl/internal/hosttree"
)

// openFiles is a live tree whose files stay open once they have been read, as many as left
// allows: opening a file of sysfs takes three times as long as reading it. It is for one reader,
// and the result of ReadFile is valid until the next call.
type openFiles struct {
	hosttree.Tree
	left *atomic.Int64
	open map[string]*os.File
	buf  []byte
}

func newOpenFiles(tree hosttree.Tree, left *atomic.Int64) *openFiles {
	return &openFiles{Tree: tree, left: left, open: map[string]*os.File{}, buf: make([]byte, os.Getpagesize())}
}

// ReadFile reads an open file from its beginning, for which the kernel prints the attribute
// again; it is complete if it is shorter than a page. Anything unusual is left to the tree.
func (o *openFiles) ReadFile(name string) ([]byte, error) {
	f := o.open[name]
	if f == nil {
		if f = o.keepOpen(name); f == nil {
			return o.Tree.ReadFile(name)
		}
	}
	n := readStart(f, o.buf)
	if n <= 0 || n == len(o.buf) {
		o.drop(name, f)
		return o.Tree.ReadFile(name)
	}
	return o.buf[:n], nil
}

// keepOpen opens a file that stays open; nil if it cannot or may not.
func (o *openFiles) keepOpen(name string) *os.File {
	if o.left.Add(-1) < 0 {
		o.left.Add(1)
		return nil
	}
	opened, err := o.Open(name)
	if err == nil {
		if f, ok := opened.(*os.File); ok {
			o.open[name] = f
			return f
		}
		_ = opened.Close()
	}
	o.left.Add(1)
	return nil
}

func (o *openFiles) drop(name string, f *os.File) {
	delete(o.open, name)
	_ = f.Close() // it was only read
	o.left.Add(1)
}

// close closes all files. They are opened again when they are read.
func (o *openFiles) close() {
	for name, f := range o.open {
		o.drop(name, f)
	}
}
