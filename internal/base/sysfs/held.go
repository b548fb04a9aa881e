package sysfs

import (
	"os"
	"sync/atomic"

	"github.com/topoctl/topoctl/internal/base/hosttree"
)

// held is a live tree whose files stay open once they were read, as many as left allows: to
// open a file of sysfs takes three times as long as to read it. It is for one reader, and what
// ReadFile gives is good until the next call.
type held struct {
	hosttree.Tree
	left *atomic.Int64
	open map[string]*os.File
	buf  []byte
}

func newHeld(tree hosttree.Tree, left *atomic.Int64) *held {
	return &held{Tree: tree, left: left, open: map[string]*os.File{}, buf: make([]byte, os.Getpagesize())}
}

// ReadFile reads an open file from its beginning: the kernel writes an attribute anew then, and
// less than a page is all of it. Whatever is unusual is left to the tree itself.
func (h *held) ReadFile(name string) ([]byte, error) {
	f := h.open[name]
	if f == nil {
		if f = h.hold(name); f == nil {
			return h.Tree.ReadFile(name)
		}
	}
	n := readBegin(f, h.buf)
	if n <= 0 || n == len(h.buf) {
		h.drop(name, f)
		return h.Tree.ReadFile(name)
	}
	return h.buf[:n], nil
}

// hold opens a file to stay open, nil where it cannot or may not.
func (h *held) hold(name string) *os.File {
	if h.left.Add(-1) < 0 {
		h.left.Add(1)
		return nil
	}
	opened, err := h.Open(name)
	if err == nil {
		if f, ok := opened.(*os.File); ok {
			h.open[name] = f
			return f
		}
		_ = opened.Close()
	}
	h.left.Add(1)
	return nil
}

func (h *held) drop(name string, f *os.File) {
	delete(h.open, name)
	_ = f.Close() // it was only read
	h.left.Add(1)
}

// close closes all files. They are opened again when they are read.
func (h *held) close() {
	for name, f := range h.open {
		h.drop(name, f)
	}
}
