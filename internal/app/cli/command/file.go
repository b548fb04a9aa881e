package command

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/discover/topo/hwlocxml"
	"github.com/topoctl/topoctl/discover/topo/ncclxml"
	"github.com/topoctl/topoctl/discover/topo/nvsmi"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/base/hosttree"
	"github.com/topoctl/topoctl/internal/base/pkgerr"
)

// maxFile is the largest file that is read, before and after decompression. The
// largest hosts' documents are about 1 MB, hwloc's about 4 MB.
const maxFile = 64 << 20

// StdinName is what --from - is called in messages.
const StdinName = "standard input"

// readFrom reads a saved host and recognises it by its content: a topology, or
// a file tree to be discovered.
func (in *Host) readFrom(ctx context.Context, name string) (*topo.Topology, fs.FS, error) {
	data, err := in.ReadFile(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	if name == "-" {
		name = StdinName
	}
	fail := func(err error) error { return fmt.Errorf("%s: %w", name, pkgerr.Plain(err)) }
	for _, f := range documentFormats {
		if f.detect(data[:min(len(data), sniffed)]) {
			if len(in.Sources) > 0 {
				return nil, nil, fmt.Errorf("%s: --sources has no effect on a document (%s)", name, f.name)
			}
			t, err := f.decode(data)
			if err != nil {
				return nil, nil, fail(err)
			}
			return t, nil, nil
		}
	}
	if !hosttree.DetectArchive(data) && !isSpec(data) {
		return nil, nil, WithHint(fmt.Errorf("%s: not a format that topoctl reads", name),
			"--from reads topoctl's JSON, NCCL topology XML, hwloc XML, nvidia-smi topo -m, and captures")
	}
	tree, err := fixtures.OpenFile(data)
	if err != nil {
		return nil, nil, fail(err)
	}
	return nil, tree, nil
}

// isSpec says whether a text looks like a machine spec: its first line that is
// no comment begins with "machine".
func isSpec(data []byte) bool {
	for line := range bytes.Lines(data[:min(len(data), sniffed)]) {
		if fields := bytes.Fields(line); len(fields) > 0 && fields[0][0] != '#' {
			return string(fields[0]) == "machine"
		}
	}
	return false
}

// sniffed is how much of a file is looked at to recognise it.
const sniffed = 64 << 10

// documentFormats are the files that hold a topology.
var documentFormats = []struct {
	name   string
	detect func(head []byte) bool
	decode func(data []byte) (*topo.Topology, error)
}{
	{"topoctl's JSON", topo.Detect, topo.Decode},
	{"NCCL topology XML", ncclxml.Detect, ncclxml.Decode},
	{"hwloc XML", hwlocxml.Detect, hwlocxml.Decode},
	{"nvidia-smi topo -m", nvsmi.Detect, nvsmi.Decode},
}

// ReadFile reads the file, or standard input for "-". A pipe may keep it
// waiting for ever, so the wait ends with ctx.
func (in *Host) ReadFile(ctx context.Context, name string) ([]byte, error) {
	var r io.Reader
	if name == "-" {
		if in.Streams.InTTY {
			return nil, WithHint(errors.New("--from - reads standard input, which is a terminal"), "pipe a file into it")
		}
		name, r = StdinName, in.Streams.In
	}
	type result struct {
		data []byte
		err  error
	}
	done := make(chan result, 1)
	go func() { // left behind when ctx ends; the program ends then too
		data, err := readFile(name, r)
		done <- result{data, err}
	}()
	select {
	case got := <-done:
		return got.data, got.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", name, ctx.Err())
	}
}

// readFile reads a whole file, or r where it is given, and unpacks gzip. What is
// empty, too large or no file is refused in one line.
func readFile(name string, r io.Reader) ([]byte, error) {
	if r == nil {
		file, err := os.Open(name)
		if err != nil {
			return nil, OpenError(name, err)
		}
		defer file.Close()
		info, err := file.Stat()
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", name, Cause(err))
		case info.IsDir():
			return nil, WithHint(fmt.Errorf("%s: is a directory", name), "--root reads a captured file tree")
		case info.Mode().IsRegular() && info.Size() > maxFile:
			return nil, tooLarge(name)
		}
		r = file
	}
	data, err := readLimited(name, r)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("%s: gzip: %w", name, err)
		}
		if data, err = readLimited(name, z); err != nil {
			return nil, err
		}
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, fmt.Errorf("%s: is empty", name)
	}
	if len(data) > 262 && string(data[257:262]) == "ustar" {
		return nil, WithHint(fmt.Errorf("%s: is a tar archive", name), "unpack it into a directory and read that with --root")
	}
	return data, nil
}

// OpenError is the error of a file that could not be opened, with advice.
func OpenError(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: no such file%w", name, quiet{err})
	}
	return fmt.Errorf("%s: %w", name, Cause(err))
}

// quiet keeps an error in the chain without printing it.
type quiet struct{ error }

func (quiet) Error() string   { return "" }
func (q quiet) Unwrap() error { return q.error }

func tooLarge(name string) error {
	return fmt.Errorf("%s: larger than %d MiB: not a topology", name, maxFile>>20)
}

func readLimited(name string, r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("%s: ends in the middle of the gzip data: truncated?", name)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, Cause(err))
	case len(data) > maxFile:
		return nil, tooLarge(name)
	}
	return data, nil
}
