package hosttree

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"unicode/utf8"

	"github.com/topoctl/topoctl/internal/base/pkgerr"
)

// WriteArchive writes a tree as a text archive that ParseArchive reads to the
// same tree. A file that cannot be read is written with its error. Files that
// are neither regular files, directories nor links are left out.
func WriteArchive(w io.Writer, t Tree, comment string) error {
	a := &archiveWriter{tree: t}
	a.line(ArchiveFormat)
	if comment != "" {
		for line := range strings.SplitSeq(strings.TrimRight(comment, "\n"), "\n") {
			a.line(strings.TrimRight("# "+strings.TrimRight(line, "\r"), " "))
		}
	}
	if err := a.dir("."); err != nil {
		return pkgerr.Errorf("hosttree", "archive: %w", err)
	}
	_, err := a.w.WriteTo(w)
	return err
}

// archiveWriter writes entries.
type archiveWriter struct {
	w    bytes.Buffer
	tree Tree
}

func (a *archiveWriter) line(s string) {
	a.w.WriteString(s)
	a.w.WriteByte('\n')
}

func (a *archiveWriter) head(name, attr string) {
	if attr != "" {
		attr = " " + attr
	}
	a.line(headBegin + quoteName(name) + attr + headEnd)
}

// dir writes a directory and what is below it. The depth is bounded by the
// length of a name.
func (a *archiveWriter) dir(name string) error {
	if err := checkName(name); err != nil {
		return pathError("archive", name, err)
	}
	entries, err := a.tree.ReadDir(name)
	if err != nil {
		a.head(name+"/", "error "+errorText(cause(err)))
		// Something may be known below a directory that cannot be listed.
		entries = hiddenEntries(a.tree, name)
	} else if len(entries) == 0 && name != "." {
		a.head(name+"/", "")
	}
	for _, e := range entries {
		child := childName(name, e.Name())
		switch e.Type() {
		case fs.ModeDir:
			err = a.dir(child)
		case fs.ModeSymlink:
			err = a.link(child)
		case 0:
			a.file(child)
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hiddenEntries lists a directory of a Mem whose ReadDir gives an error.
func hiddenEntries(t Tree, name string) []fs.DirEntry {
	m, ok := t.(*Mem)
	if !ok {
		return nil
	}
	n, err := m.find("open", name, false)
	if err != nil {
		return nil
	}
	return n.entries()
}

func (a *archiveWriter) link(name string) error {
	target, err := a.tree.ReadLink(name)
	if err != nil {
		return err
	}
	a.head(name, "-> "+quoteName(target))
	return nil
}

func (a *archiveWriter) file(name string) {
	data, err := a.tree.ReadFile(name)
	switch {
	case err != nil:
		a.head(name, "error "+errorText(cause(err)))
	case !isText(data):
		a.head(name, "hex")
		a.hex(data)
	case len(data) > 0 && data[len(data)-1] != '\n':
		a.head(name, "noeol")
		a.text(data)
		a.line("")
	default:
		a.head(name, "")
		a.text(data)
	}
}

// isText says whether content can stand in the archive as it is.
func isText(data []byte) bool {
	for _, c := range data {
		if c < ' ' && c != '\n' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return utf8.Valid(data)
}

func (a *archiveWriter) text(data []byte) {
	for line := range bytes.Lines(data) {
		if bytes.HasPrefix(line, []byte(headBegin)) || line[0] == '\\' {
			a.w.WriteByte('\\')
		}
		a.w.Write(line)
	}
}

func (a *archiveWriter) hex(data []byte) {
	const row = 32
	for len(data) > 0 {
		n := min(row, len(data))
		a.line(fmt.Sprintf("% x", data[:n]))
		data = data[n:]
	}
}
