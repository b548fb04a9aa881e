package sysfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
)

// Limits on what is read from a tree, which may be hostile.
const (
	maxAttr    = 64 << 10 // bytes of a one-line attribute
	maxEntries = 1 << 16  // entries of a directory
)

// files are the attribute files of one device: dir is its directory in the
// tree, show the name that warnings use, subject the node they are about, facts
// where the provenance of the node's attributes goes.
type files struct {
	r       *reader
	dir     string
	show    string
	subject topo.ID
	facts   *topo.Facts
}

// need says what a missing or unreadable attribute means.
type need int

const (
	optional need = iota // may be missing, must be readable
	required             // every such device has it
	quiet                // may be missing or refuse to be read; only its content is judged
)

// text is a one-line attribute without its line end. It is false if the attribute
// cannot be used; the warning, if one is due, has been added then.
func (f files) text(name string, n need) (string, bool) {
	s, _, ok := f.lookup(name, n)
	return s, ok
}

// lookup is text that also reports whether the file exists.
func (f files) lookup(name string, n need) (s string, there, ok bool) {
	data, err := f.r.tree.ReadFile(f.dir + "/" + name)
	if err != nil {
		f.readError(name, n, err)
		return "", !errors.Is(err, fs.ErrNotExist), false
	}
	if len(data) == 0 && n == quiet {
		return "", true, false // how captures keep a file that refused to be read
	}
	s, err = oneLine(data)
	if err != nil {
		f.warn(topo.CodeMalformed, name, err.Error())
		return "", true, false
	}
	return s, true, true
}

func (f files) readError(name string, n need, err error) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if n == required {
			f.warn(topo.CodeMissing, name, "no such file")
		}
	case n == quiet, n == optional && notApplicable(err):
	case errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENXIO):
		f.warn(topo.CodeVanished, name, "the device went away while it was read")
	default:
		f.warn(topo.CodeUnreadable, name, reason(err))
	}
}

// notApplicable reports whether an error is the kernel's way of saying that a
// device has no such attribute.
func notApplicable(err error) bool {
	return errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported)
}

// value reads an attribute through a parser, whose error becomes a warning.
func value[T any](f files, name string, n need, parse func(string) (T, error)) (v T, ok bool) {
	s, ok := f.text(name, n)
	if !ok {
		return v, false
	}
	v, err := parse(s)
	if err != nil {
		f.warn(topo.CodeMalformed, name, err.Error())
		var zero T
		return zero, false
	}
	return v, true
}

// attribute reads an attribute of the node from a file and records in the node's
// facts that it came from there. It is zero if the file does not give it.
func attribute[T comparable](f files, name, file string, n need, parse func(string) (T, error)) T {
	v, _ := value(f, file, n, parse)
	var zero T
	f.fact(v != zero, name, file)
	return v
}

// optionalAttribute is attribute with nil for an unknown value.
func optionalAttribute[T any](f files, name, file string, n need, parse func(string) (T, error)) *T {
	v, ok := value(f, file, n, parse)
	if !ok {
		return nil
	}
	f.fact(true, name, file)
	return &v
}

// asIs is the parser of an attribute that may be any text.
func asIs(s string) (string, error) { return s, nil }

// linkAttribute is attribute for one that is the name of a link's target.
func (f files) linkAttribute(name, file string) string {
	target := f.link(file)
	f.fact(target != "", name, file)
	return target
}

// fact records, if the attribute is known, that it came from a file.
func (f files) fact(known bool, name, file string) {
	if known {
		f.facts.Set(name, topo.SourceSysfs, file)
	}
}

// link is the last element of a symbolic link's target, "" if there is no link.
func (f files) link(name string) string {
	target, err := f.r.tree.ReadLink(f.dir + "/" + name)
	if err != nil {
		return ""
	}
	base := path.Base(target)
	if !validName(base) {
		f.warn(topo.CodeMalformed, name, fmt.Sprintf("link to %q: not a name", clip(target)))
		return ""
	}
	return base
}

func (f files) warn(code topo.Code, name, detail string) {
	show := f.show
	if name != "" {
		show += "/" + name
		detail = name + ": " + detail
	}
	f.r.warn(code, f.subject, show, detail)
}

// warn adds a warning; where is a name in the tree, without the leading slash.
func (r *reader) warn(code topo.Code, subject topo.ID, where, detail string) {
	r.t.Warnings = append(r.t.Warnings, topo.Warning{
		Code: code, Subject: subject, Detail: detail, Evidence: "/" + where, Source: sourceOf(where),
	})
}

// sourceOf is the source that a name in the tree belongs to.
func sourceOf(name string) topo.Source {
	switch first, _, _ := strings.Cut(name, "/"); first {
	case "sys":
		return topo.SourceSysfs
	case "dev":
		return topo.SourceDev
	}
	return topo.SourceProc
}

// list is a directory's entries. A missing directory has no entries; any other failure
// is a warning. Entries with names that no kernel would give are left out.
func (r *reader) list(dir string) []fs.DirEntry {
	entries, err := r.tree.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.warn(topo.CodeUnreadable, "", dir, reason(err))
	}
	if len(entries) > maxEntries {
		r.warn(topo.CodeSkipped, "", dir, fmt.Sprintf("%d entries, only the first %d are read", len(entries), maxEntries))
		entries = entries[:maxEntries]
	}
	bad := func(e fs.DirEntry) bool { return !validName(e.Name()) }
	if !slices.ContainsFunc(entries, bad) {
		return entries
	}
	for _, e := range entries {
		if bad(e) {
			r.warn(topo.CodeMalformed, "", dir, fmt.Sprintf("entry %q: not a name", clip(e.Name())))
		}
	}
	return slices.DeleteFunc(slices.Clone(entries), bad)
}

// readHead is the first n bytes of a file: enough of /proc/cpuinfo, which a kernel
// with hundreds of CPUs takes long to print.
func (r *reader) readHead(name string, n int) (data []byte, there bool) {
	f, err := r.tree.Open(name)
	if err != nil {
		return nil, !errors.Is(err, fs.ErrNotExist)
	}
	defer func() { _ = f.Close() }()
	buf := make([]byte, n)
	got, _ := io.ReadFull(f, buf)
	return buf[:got], true
}

func (r *reader) exists(name string) bool {
	_, err := r.tree.Lstat(name)
	return err == nil
}

// attached is where a device of a class (net, infiniband, nvme) belongs.
type attached struct {
	dir     string    // its own directory
	device  string    // the directory of the device that it belongs to, "" if none
	bdf     *topo.BDF // the nearest PCI function above, nil if none
	virtual bool      // below /sys/devices/virtual
	broken  bool      // the class link's target is missing
}

// attach finds where /sys/class/CLASS/NAME belongs: from the target of the class
// link, then from the device link, then from the device's uevent file.
func (r *reader) attach(class string, e fs.DirEntry) attached {
	a := attached{dir: "sys/class/" + class + "/" + e.Name()}
	if e.Type()&fs.ModeSymlink != 0 {
		if target, err := r.tree.ReadLink(a.dir); err == nil {
			a.dir = resolve("sys/class/"+class, target)
			a.virtual = strings.HasPrefix(a.dir, "sys/devices/virtual/")
			a.broken = !r.exists(a.dir)
			if up := path.Dir(a.dir); path.Base(up) == class && !a.virtual {
				a.device = path.Dir(up)
			}
		}
	}
	if a.virtual {
		return a
	}
	if a.device == "" {
		if target, err := r.tree.ReadLink(a.dir + "/device"); err == nil {
			a.device = resolve(a.dir, target)
		}
	}
	if b, ok := nearestBDF(a.device); ok {
		a.bdf = &b
	} else if data, err := r.tree.ReadFile(a.dir + "/device/uevent"); err == nil && len(data) <= maxAttr {
		if b, err := topo.ParseBDF(ueventValue(data, "PCI_SLOT_NAME")); err == nil {
			a.bdf = &b
		}
	}
	return a
}

// resolve is the name of a link's target in the tree. Paths in sysfs contain no
// other links on the way, so the text of the link is enough.
func resolve(dir, target string) string {
	if strings.HasPrefix(target, "/") {
		return strings.TrimPrefix(path.Clean(target), "/")
	}
	name := path.Join(dir, target)
	for strings.HasPrefix(name, "../") {
		name = name[3:]
	}
	return name
}

// nearestBDF is the last PCI address among a path's elements.
func nearestBDF(dir string) (topo.BDF, bool) {
	for dir != "" {
		i := strings.LastIndexByte(dir, '/')
		if b, ok := elementBDF(dir[i+1:]); ok {
			return b, true
		}
		dir = dir[:max(i, 0)]
	}
	return topo.BDF{}, false
}

// elementBDF reads a path element as a PCI address with its domain.
func elementBDF(s string) (topo.BDF, bool) {
	if len(s) < len("0000:00:00.0") || s[len(s)-2] != '.' || s[len(s)-5] != ':' {
		return topo.BDF{}, false
	}
	b, err := topo.ParseBDF(s)
	return b, err == nil
}

// ueventValue is the value of KEY=VALUE in a uevent file, "" if it has none.
func ueventValue(data []byte, key string) string {
	for line := range bytes.Lines(data) {
		k, v, ok := bytes.Cut(line, []byte{'='})
		if v = bytes.TrimSpace(v); ok && string(k) == key && validName(string(v)) {
			return string(v)
		}
	}
	return ""
}

// oneLine is an attribute's text without surrounding blanks, and without the zero
// bytes that some kernels end it with. An empty file is an error: a kernel ends
// even an empty value with a newline.
func oneLine(data []byte) (string, error) {
	if len(data) == 0 {
		return "", errors.New("empty file")
	}
	if len(data) > maxAttr {
		return "", fmt.Errorf("%d bytes, too long for an attribute", len(data))
	}
	data = bytes.TrimSpace(bytes.TrimRight(data, "\x00\n"))
	for _, c := range data {
		if c < ' ' && c != '\t' || c == 0x7f {
			return "", fmt.Errorf("%s: not a line of text", strconv.Quote(clip(string(data))))
		}
	}
	if !utf8.Valid(data) {
		return "", fmt.Errorf("%s: not a line of text", strconv.Quote(clip(string(data))))
	}
	return string(data), nil
}

var errNumber = errors.New("not a number in range")

// parseUint reads a decimal number without sign, from 0 to limit.
func parseUint(s string, limit int) (int, error) {
	if s == "" || len(s) > 18 {
		return 0, errNumber
	}
	n := 0
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, errNumber
		}
		n = n*10 + int(s[i]-'0')
	}
	if n > limit {
		return 0, errNumber
	}
	return n, nil
}

// validName reports whether s can be the name of a device, driver or interface.
func validName(s string) bool {
	if s == "" || s == "." || s == ".." || len(s) > 255 || !utf8.ValidString(s) {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] == 0x7f || s[i] == '/' {
			return false
		}
	}
	return true
}

// clip shortens text that a warning quotes.
func clip(s string) string { return text.Clip(s, 64) }

// reason is an error's text without the path, which the warning names anyway.
func reason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}
