package collect

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
)

// documentEndings are those of the files in folders and archives that are taken for documents of
// hosts; others lie beside them.
var documentEndings = []string{".json", ".json.gz", ".tree", ".tree.gz"}

// HostName is what a host is called whose document is a file: the file's name without what it ends in.
func HostName(file string) string {
	base := path.Base(filepath.ToSlash(file))
	base = strings.TrimSuffix(base, ".gz")
	if i := strings.LastIndexByte(base, '.'); i > 0 {
		base = base[:i]
	}
	return base
}

// isHostFile says whether a file of a folder may be the document of a host.
func isHostFile(name string) bool {
	base := path.Base(filepath.ToSlash(name))
	return !strings.HasPrefix(base, ".") && base != FleetFile && slices.ContainsFunc(documentEndings, func(e string) bool { return strings.HasSuffix(base, e) })
}

// deepest is how many folders below the one that was named are looked into.
const deepest = 4

// Folder lists the documents below a folder, in the order of names, by their paths. Links are not
// followed.
func Folder(dir string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(dir, file)
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if file != dir && (strings.HasPrefix(d.Name(), ".") || strings.Count(filepath.ToSlash(below), "/") >= deepest) {
				return filepath.SkipDir
			}
		case d.Type().IsRegular() && isHostFile(file):
			out = append(out, file)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, topo.NaturalCompare)
	return out, nil
}

// Names are what hosts are called whose documents are these files: by their file names, or where two
// files are called alike, by their paths below the folder.
func Names(dir string, files []string) []string {
	count := map[string]int{}
	for _, f := range files {
		count[HostName(f)]++
	}
	out := make([]string, len(files))
	for i, f := range files {
		if out[i] = HostName(f); count[out[i]] > 1 {
			out[i] = pathName(dir, f)
		}
	}
	return out
}

// pathName is a host's name by the path of its document: "n1" of n1/topology.json where the file's
// own name says nothing, as it is the same for several.
func pathName(dir, file string) string {
	below, err := filepath.Rel(dir, file)
	if err != nil {
		below = file
	}
	below = filepath.ToSlash(below)
	if folder := path.Dir(below); folder != "." {
		return folder + "/" + HostName(below)
	}
	return HostName(below)
}

// IsArchive says whether a file is a tar archive, packed or not, by its name.
func IsArchive(name string) bool {
	return slices.ContainsFunc([]string{".tar", ".tar.gz", ".tgz"}, func(e string) bool { return strings.HasSuffix(name, e) })
}

// maxMembers bounds the entries of an archive that are looked at.
const maxMembers = 1 << 20

// Archive gives the documents of a tar archive, packed or not, one after the other, so that none but those at work are
// in memory.
func Archive(name string) iter.Seq2[Source, error] {
	return func(yield func(Source, error) bool) {
		f, err := os.Open(name)
		if err != nil {
			yield(Source{}, fmt.Errorf("%s: %w", name, cause(err)))
			return
		}
		defer f.Close()
		ArchiveOf(f, name)(yield)
	}
}

// ArchiveOf is [Archive] of what a reader gives, called name in messages.
func ArchiveOf(r io.Reader, name string) iter.Seq2[Source, error] {
	return func(yield func(Source, error) bool) {
		if err := archive(r, filepath.Base(name), yield); err != nil {
			yield(Source{}, fmt.Errorf("%s: %w", name, err))
		}
	}
}

// DetectArchive says whether data, or what is packed in it, begins as a tar archive does. 1 KiB is enough.
func DetectArchive(head []byte) bool {
	const at, magic = 257, "ustar"
	head = Unpacked(head)
	return len(head) >= at+len(magic) && string(head[at:at+len(magic)]) == magic
}

// Unpacked is the beginning of what data begins: as much as is there where it is packed, else data itself.
func Unpacked(head []byte) []byte {
	if !isGzip(head) {
		return head
	}
	z, err := gzip.NewReader(bytes.NewReader(head))
	if err != nil {
		return nil
	}
	plain, _ := io.ReadAll(io.LimitReader(z, int64(len(head)))) // it ends in the middle
	return plain
}

func isGzip(head []byte) bool { return bytes.HasPrefix(head, []byte("\x1f\x8b")) }

func archive(data io.Reader, name string, yield func(Source, error) bool) error {
	b := bufio.NewReader(data)
	var r io.Reader = b
	if head, _ := b.Peek(2); isGzip(head) {
		z, err := gzip.NewReader(b)
		if err != nil {
			return fmt.Errorf("gzip: %w", err)
		}
		r = z
	}
	in, seen := tar.NewReader(r), map[string]bool{}
	for range maxMembers {
		h, err := in.Next()
		switch {
		case errors.Is(err, io.EOF) && len(seen) == 0:
			return errors.New("no documents of hosts: want files called *.json, *.tree, or *.json.gz, *.tree.gz")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("tar: %w", err)
		case h.Typeflag != tar.TypeReg || !isHostFile(h.Name):
			continue
		}
		host := HostName(h.Name)
		if seen[host] {
			host = pathName(".", path.Clean(h.Name))
		}
		seen[host] = true
		data, err := member(in, h)
		s := Source{Name: host, From: "file " + text.Printable(h.Name) + " of " + name, Read: func(context.Context) ([]byte, error) { return data, err }}
		if !yield(s, nil) {
			return nil
		}
	}
	return fmt.Errorf("more than %d entries", maxMembers)
}

// member reads an entry, and unpacks it.
func member(in io.Reader, h *tar.Header) ([]byte, error) {
	if h.Size > maxDocument {
		return nil, fmt.Errorf("larger than %d MiB", maxDocument>>20)
	}
	if strings.HasSuffix(h.Name, ".gz") {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		in = z
	}
	return readAll(in)
}

// cause is an error without the operation and the path, which the caller names.
func cause(err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}
