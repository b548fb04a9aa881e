package hosttree

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// ArchiveFormat is the first line of a text archive.
//
// The lines after it that start with "#" are the comment. Then each file,
// directory or link has a header line, in the order of their names:
//
//	-- sys/class/net/eth0/mtu --                 a file; its lines follow
//	-- sys/class/net/eth0/name noeol --          the last line has no line end
//	-- sys/devices/pci0000:00/config hex --      bytes in hexadecimal follow
//	-- sys/class/net/eth0 -> ../../devices/x --  a symbolic link
//	-- sys/bus/pci/slots/ --                     a directory without entries
//	-- sys/class/net/eth0/speed error invalid argument --
//	                                             reading (or listing) it failed
//
// A content line that starts with "-- " or a backslash has a backslash before
// it. A name or target that holds a space, a quote, a control character or
// invalid UTF-8 is quoted as in Go.
const ArchiveFormat = "topoctl-tree/v1"

// Limits of an archive: bytes after decompression, and entries with the
// directories above them.
const (
	maxArchive        = 64 << 20
	maxArchiveEntries = 1_000_000
)

const (
	headBegin = "-- "
	headEnd   = " --"
)

// DetectArchive says whether data, or its beginning, is a text archive that is not compressed.
func DetectArchive(data []byte) bool {
	line, _, _ := bytes.Cut(data, []byte("\n"))
	return strings.TrimRight(string(line), " \r") == ArchiveFormat
}

func isGzip(data []byte) bool { return len(data) > 2 && data[0] == 0x1f && data[1] == 0x8b }

// ParseArchive reads a text archive, plain or compressed with gzip. Errors
// name the line.
func ParseArchive(data []byte) (*Mem, error) {
	if isGzip(data) {
		unpacked, err := gunzip(data)
		if err != nil {
			return nil, pkgerr.Errorf("hosttree", "archive: gzip: %w", err)
		}
		data = unpacked
	}
	if len(data) > maxArchive {
		return nil, pkgerr.Errorf("hosttree", "archive: larger than %d MiB", maxArchive>>20)
	}
	p := archiveParser{rest: data, tree: NewMem(), most: maxArchiveEntries}
	if err := p.parse(); err != nil {
		return nil, pkgerr.Errorf("hosttree", "archive: line %d: %w", p.line, err)
	}
	return p.tree, nil
}

func gunzip(data []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	unpacked, err := io.ReadAll(io.LimitReader(z, maxArchive+1))
	if err == nil && len(unpacked) > maxArchive {
		err = fmt.Errorf("unpacks to more than %d MiB", maxArchive>>20)
	}
	return unpacked, err
}

// archiveParser reads line by line. line is the number of the last line read.
type archiveParser struct {
	rest []byte
	line int
	tree *Mem
	most int // of files, directories and links
}

// next gives the next line without its end.
func (p *archiveParser) next() (string, bool) {
	if len(p.rest) == 0 {
		return "", false
	}
	line, rest, _ := bytes.Cut(p.rest, []byte("\n"))
	p.rest = rest
	p.line++
	return string(line), true
}

// atHead says whether the next line begins an entry.
func (p *archiveParser) atHead() bool { return bytes.HasPrefix(p.rest, []byte(headBegin)) }

func (p *archiveParser) parse() error {
	first, _ := p.next()
	if strings.HasSuffix(first, "\r") {
		return errors.New(`lines end in "\r\n"; the archive was changed in transit`)
	}
	if first != ArchiveFormat {
		return fmt.Errorf("the first line is not %q", ArchiveFormat) // nor printed: it may be of any file of this host
	}
	var comment []string
	for !p.atHead() {
		line, ok := p.next()
		if !ok {
			break
		}
		text, isComment := strings.CutPrefix(line, "#")
		if !isComment && line != "" {
			return fmt.Errorf("neither a comment nor an entry (%sNAME%s)", headBegin, headEnd)
		}
		if isComment {
			comment = append(comment, strings.TrimPrefix(text, " "))
		}
	}
	p.tree.Comment = strings.Join(comment, "\n")
	for len(p.rest) > 0 {
		if err := p.entry(); err != nil {
			return err
		}
		if p.tree.nodes > p.most {
			return fmt.Errorf("more than %d files and directories", p.most)
		}
	}
	return nil
}

// entry reads one header and its content.
func (p *archiveParser) entry() error {
	line, _ := p.next()
	at := p.line
	head, ok := strings.CutSuffix(strings.TrimPrefix(line, headBegin), headEnd)
	if !ok {
		return fmt.Errorf("entry %.80q does not end in %q", line, headEnd)
	}
	name, attr, err := cutName(head)
	if err != nil {
		return err
	}
	dir, isDir := strings.CutSuffix(name, "/")
	word, arg, _ := strings.Cut(attr, " ")
	var add error
	switch {
	case isDir && attr == "":
		add = p.tree.AddDir(dir)
	case isDir && word == "error":
		add = p.tree.AddUnreadableDir(dir, errorNamed(arg))
	case !isDir && word == "->":
		target, rest, err := cutName(arg)
		if err != nil || rest != "" {
			return fmt.Errorf("link target %.80q: want one name", arg)
		}
		add = p.tree.AddSymlink(name, target)
	case !isDir && word == "error":
		add = p.tree.AddUnreadable(name, errorNamed(arg))
	case !isDir && (attr == "" || attr == "noeol" || attr == "hex"):
		data, err := p.content(attr)
		if err != nil {
			return err
		}
		add = p.tree.AddFile(name, data)
	default:
		return fmt.Errorf("entry %.80q: %.40q is not understood", name, attr)
	}
	if add != nil {
		p.line = at
		return fmt.Errorf("entry %.200q: %w", name, cause(add))
	}
	if len(p.rest) > 0 && !p.atHead() {
		p.line++
		return fmt.Errorf("content where none can be: %.200q is not a file with content", name)
	}
	return nil
}

// content reads lines up to the next header.
func (p *archiveParser) content(attr string) ([]byte, error) {
	var data []byte
	for len(p.rest) > 0 && !p.atHead() {
		line, _ := p.next()
		if attr == "hex" {
			more, err := unhex(line)
			if err != nil {
				return nil, err
			}
			data = append(data, more...)
			continue
		}
		data = append(append(data, strings.TrimPrefix(line, `\`)...), '\n')
		if len(data) > MaxFileSize+1 {
			return nil, ErrTooLarge
		}
	}
	if attr == "noeol" {
		if len(data) == 0 {
			return nil, errors.New("noeol without a line")
		}
		data = data[:len(data)-1]
	}
	return data, nil
}

func unhex(line string) ([]byte, error) {
	fields := strings.Fields(line)
	data := make([]byte, len(fields))
	for i, f := range fields {
		v, err := strconv.ParseUint(f, 16, 8)
		if err != nil || len(f) != 2 {
			return nil, fmt.Errorf("%.20q: want two hexadecimal digits", f)
		}
		data[i] = byte(v)
	}
	return data, nil
}

// cutName takes a name, quoted or not, from the beginning of a header.
func cutName(s string) (name, rest string, err error) {
	if !strings.HasPrefix(s, `"`) {
		name, rest, _ = strings.Cut(s, " ")
		return name, rest, nil
	}
	quoted, err := strconv.QuotedPrefix(s)
	if err != nil {
		return "", "", fmt.Errorf("%.80q: quote without end", s)
	}
	if name, err = strconv.Unquote(quoted); err != nil {
		return "", "", fmt.Errorf("%.80q: %w", quoted, err)
	}
	rest = s[len(quoted):]
	if rest != "" && rest[0] != ' ' {
		return "", "", fmt.Errorf("%.80q: no space after the quote", s)
	}
	return name, strings.TrimPrefix(rest, " "), nil
}

// quoteName is the inverse of cutName.
func quoteName(name string) string {
	for _, c := range name {
		if c <= ' ' || c == '"' || c == utf8.RuneError || !strconv.IsPrint(c) {
			return strconv.Quote(name)
		}
	}
	return name
}

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
	return utf8.Valid(data) && !bytes.ContainsFunc(data, func(r rune) bool { return r != '\n' && r != '\t' && !strconv.IsPrint(r) })
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
