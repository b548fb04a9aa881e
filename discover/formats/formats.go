// Package formats reads a host from a file, whose format it recognises by the content: documents of topoctl, captures,
// files of NCCL and hwloc, texts of tools. It is what the command topoctl does for --from and --with.
package formats

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/formats/hwlocxml"
	"github.com/topoctl/topoctl/discover/formats/ncclxml"
	"github.com/topoctl/topoctl/discover/formats/texts"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/hosttree"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Format is a kind of file that holds a host. It has either Decode or Open.
type Format struct {
	Name string // for people
	// Detect says whether a file is of this format by its first bytes, 64 KiB at most.
	Detect func(head []byte) bool
	// Decode reads a topology; its relations are derived.
	Decode func(data []byte) (*topo.Topology, error)
	// Open gives the files of a host, which are for discover.Options.FS.
	Open func(data []byte) (fs.FS, error)
}

// headSize is how much of a file Detect is given.
const headSize = 64 << 10

// formats are in the order in which they are looked for. To add a text: a row of texts.Formats; another file: a
// package below this one, and a row here.
var formats = func() []Format {
	out := []Format{
		{Name: "topoctl JSON", Detect: topo.Detect, Decode: topo.Decode},
		{Name: "NCCL topology XML", Detect: ncclxml.Detect, Decode: ncclxml.Decode},
		{Name: "hwloc XML", Detect: hwlocxml.Detect, Decode: hwlocxml.Decode},
	}
	for _, f := range texts.Formats {
		out = append(out, Format{Name: f.Name, Detect: f.Detect, Decode: f.Decode})
	}
	return append(out, Format{Name: "captures",
		Detect: func(head []byte) bool { return hosttree.DetectArchive(head) || fixtures.IsMachine(head) },
		Open:   func(data []byte) (fs.FS, error) { return fixtures.OpenFile(data) }})
}()

// Formats are what Read reads. The first that detects its own reads a file.
func Formats() []Format { return slices.Clone(formats) }

// ErrUnknown is wrapped by the error for a file of no format that is known.
var ErrUnknown = errors.New("unknown format")

// FileError is the error for a file that cannot be read although its format is known, or that is empty, too large, a
// tar archive or damaged where it is compressed.
type FileError struct {
	Name   string // as Options and Text have it
	Format string // one of Formats, or NetworkTexts; "" where it was not recognised yet
	Err    error  // says where in the file, if that is known
}

// Error is the name of the file, if it has one, with what is wrong with it.
func (e *FileError) Error() string { return prefix(e.Name) + pkgerr.Message(e.Err) }

// Unwrap gives Err.
func (e *FileError) Unwrap() error { return e.Err }

// NetworkTexts is what FileError.Format says of Options.With.
const NetworkTexts = "texts of network tools"

// MaxBytes is what Read takes of a file at most, compressed or not, unless Options say less. The largest hosts'
// documents are about 1 MB, hwloc's about 4 MB.
const MaxBytes = 64 << 20

// Options say how a file is read. The zero value is good for all formats.
type Options struct {
	Name     string // what errors call the file: its path, say
	MaxBytes int    // the most that a file may have, compressed or not; 0: MaxBytes, and more than that is not read
	// With tells of the same host what the file lacks: the output of ibstat, ibdev2netdev, rdma link and ip addr.
	// Where both tell and differ, the file counts, and the topology has a warning.
	With []Text
	// Sources are those of discover.Options and ToolVersion is that for Topology.Tool. Both are for captures: a
	// document has its own.
	Sources     []string
	ToolVersion string
}

// Text is the output of network tools.
type Text struct {
	Name string // what errors and evidence call it: the path of its file, say
	Data []byte
}

// Detect says of which format a file is; data may be its first 64 KiB if it is not compressed. The error is one of
// Read's.
func Detect(data []byte) (Format, error) {
	data, err := document.Unpack(data, MaxBytes)
	if err != nil {
		return Format{}, pkgerr.Errorf("formats", "%w", &FileError{Err: err})
	}
	found := detect(data)
	if len(found) == 0 {
		return Format{}, unknown("")
	}
	return found[0], nil
}

// detect gives the formats that detect their own in a file: the first reads it.
func detect(data []byte) (found []Format) {
	for _, f := range formats {
		if f.Detect(data[:min(len(data), headSize)]) {
			found = append(found, f)
		}
	}
	return found
}

func unknown(name string) error {
	var names []string
	for _, f := range formats {
		names = append(names, f.Name)
	}
	return pkgerr.Errorf("formats", "%s%w: want one of %s", prefix(name), ErrUnknown, strings.Join(names, ", "))
}

// prefix begins the text of an error about a file.
func prefix(name string) string {
	if name == "" {
		return ""
	}
	return name + ": "
}

// Read reads a host from the content of a file of any of Formats, also one that gzip has compressed or that is in
// UTF-16, and adds what Options.With tells. Relations are derived. What could not be read of it is in the topology's
// warnings. A file of no known format gives an error that wraps ErrUnknown, a damaged one a *FileError. ctx bounds
// the discovery in captures, whose files are in memory: the error wraps its own where it ends that.
func Read(ctx context.Context, data []byte, o Options) (*topo.Topology, error) {
	most := min(cmp.Or(o.MaxBytes, MaxBytes), MaxBytes)
	fail := func(name, format string, err error) error {
		return pkgerr.Errorf("formats", "%w", &FileError{name, format, err})
	}
	data, err := document.Unpack(data, most)
	if err != nil {
		return nil, fail(o.Name, "", err)
	}
	found := detect(data)
	if len(found) == 0 {
		return nil, unknown(o.Name)
	}
	t, err := found[0].read(ctx, data, o)
	switch {
	case err != nil && errors.Is(err, ctx.Err()):
		return nil, err
	case err != nil:
		return nil, fail(o.Name, found[0].Name, err)
	}
	for _, other := range found[1:] {
		if other.Decode != nil {
			t.Warnings = append(t.Warnings, topo.Warning{Code: topo.CodeLossyImport, Detail: "the text of " + other.Name + " in the same file is not read: it wants a file of its own"})
		}
	}
	if len(o.With) == 0 {
		return t, nil
	}
	var with []*texts.Network
	for _, text := range o.With {
		data, err := document.Unpack(text.Data, most)
		if err != nil {
			return nil, fail(text.Name, NetworkTexts, err)
		}
		network, err := texts.ParseNetwork(text.Name, data)
		if err != nil {
			return nil, fail(text.Name, NetworkTexts, err)
		}
		with = append(with, network)
	}
	if err := texts.Lay(t, with); err != nil {
		return nil, fail("", NetworkTexts, err)
	}
	return t, nil
}

// read gives what a file of this format holds.
func (f *Format) read(ctx context.Context, data []byte, o Options) (*topo.Topology, error) {
	if f.Decode != nil {
		return f.Decode(data)
	}
	tree, err := f.Open(data)
	if err != nil {
		return nil, err
	}
	return discover.Discover(ctx, discover.Options{FS: tree, Sources: o.Sources, ToolVersion: o.ToolVersion})
}
