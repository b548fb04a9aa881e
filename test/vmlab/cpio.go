package vmlab

// What lab machines boot: a kernel and an initial file system, from
// Debian packages that are unpacked in a cache and never installed.

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
)

// bootTree is the files of a machine by path, without a slash in front. Folders come of
// themselves.
type bootTree map[string]bootNode

// bootNode is one file: a symbolic link, bytes at hand, or a copy of a file of the builder.
type bootNode struct {
	Link   string // target of a symbolic link
	From   string // file of the builder
	Data   []byte
	Exec   bool
	Folder bool
}

const (
	modeFolder = 0o040755
	modeFile   = 0o100644
	modeExec   = 0o100755
	modeLink   = 0o120777
)

// writeCPIO writes the tree as an archive in the kernel's "newc" form
// (Documentation/driver-api/early-userspace/buffer-format.rst): owned by root, sorted,
// without times, so that equal trees give equal bytes. Archives can follow each other
// in one file; links keep what an earlier one put below them.
func writeCPIO(w io.Writer, t bootTree) error {
	out := &cpioWriter{w: bufio.NewWriterSize(w, 1<<20)}
	folders := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if err := out.parents(name, folders); err != nil {
			return err
		}
		if err := out.node(name, t[name], folders); err != nil {
			return fmt.Errorf("image: %s: %w", name, err)
		}
	}
	if err := out.header("TRAILER!!!", 0, 0); err != nil {
		return err
	}
	return out.w.Flush()
}

type cpioWriter struct {
	w     *bufio.Writer
	inode int
}

func (c *cpioWriter) parents(name string, done map[string]bool) error {
	dir := path.Dir(name)
	if dir == "." || done[dir] {
		return nil
	}
	if err := c.parents(dir, done); err != nil {
		return err
	}
	done[dir] = true
	return c.header(dir, modeFolder, 0)
}

func (c *cpioWriter) node(name string, n bootNode, folders map[string]bool) error {
	switch {
	case n.Folder:
		if folders[name] {
			return nil
		}
		folders[name] = true
		return c.header(name, modeFolder, 0)
	case n.Link != "":
		return c.content(name, modeLink, []byte(n.Link))
	case n.From != "":
		return c.file(name, n)
	case n.Exec:
		return c.content(name, modeExec, n.Data)
	}
	return c.content(name, modeFile, n.Data)
}

func (c *cpioWriter) content(name string, mode int, data []byte) error {
	if err := c.header(name, mode, int64(len(data))); err != nil {
		return err
	}
	if _, err := c.w.Write(data); err != nil {
		return err
	}
	return c.pad(len(data))
}

func (c *cpioWriter) file(name string, n bootNode) error {
	f, err := os.Open(n.From)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	mode := modeFile
	if n.Exec || info.Mode()&0o111 != 0 {
		mode = modeExec
	}
	if err := c.header(name, mode, info.Size()); err != nil {
		return err
	}
	if _, err := io.CopyN(c.w, f, info.Size()); err != nil {
		return err
	}
	return c.pad(int(info.Size() & 3))
}

// header: thirteen numbers of eight hexadecimal digits behind the magic, the name with
// a zero, and padding so that header and name fill words of four bytes.
func (c *cpioWriter) header(name string, mode int, size int64) error {
	if size > 0xffffffff {
		return fmt.Errorf("%d bytes do not fit the archive", size)
	}
	c.inode++
	links := 1
	if mode == modeFolder {
		links = 2
	}
	_, err := fmt.Fprintf(c.w, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		c.inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, len(name)+1, 0, name)
	if err != nil {
		return err
	}
	return c.pad(110 + len(name) + 1)
}

func (c *cpioWriter) pad(written int) error {
	_, err := c.w.WriteString("\x00\x00\x00"[:(4-written&3)&3])
	return err
}
