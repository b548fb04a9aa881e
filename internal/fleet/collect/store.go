package collect

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Store keeps documents of hosts in a folder: "hosts/n1.json.gz" below it.
type Store struct {
	dir   string
	write func(name string, data []byte) error
}

// The names in the folder of a fleet.
const (
	FleetFile   = "fleet.json"
	hostsFolder = "hosts"
	extension   = ".json.gz"
)

// maxDocument is the largest document of a host that is read back, packed and unpacked.
const maxDocument = 64 << 20

// OpenStore makes the folder where it is not there. write puts data into a file that is never seen half
// written.
func OpenStore(dir string, write func(name string, data []byte) error) (*Store, error) {
	if err := os.MkdirAll(filepath.Join(dir, hostsFolder), 0o777); err != nil {
		return nil, err
	}
	return &Store{dir, write}, nil
}

// path is the document of a host, relative to the folder, with slashes. A name that is no file name
// is escaped.
func (s *Store) path(name string) string {
	var b strings.Builder
	for i, c := range []byte(name) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' && i > 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	file := b.String()
	if most := 200; len(file) > most { // file systems take 255 bytes
		sum := sha256.Sum256([]byte(name))
		file = file[:most-20] + "%" + hex.EncodeToString(sum[:8])
	}
	return hostsFolder + "/" + file + extension
}

// keep packs a document and puts it into its file.
func (s *Store) keep(name string, document []byte) (path, sum string, err error) {
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err == nil {
		_, err = z.Write(document)
	}
	if err == nil {
		err = z.Close()
	}
	path = s.path(name)
	if err == nil {
		err = s.write(filepath.Join(s.dir, filepath.FromSlash(path)), packed.Bytes())
	}
	if err != nil {
		return "", "", fmt.Errorf("%w the document of %s: %w", errStore, name, err)
	}
	return path, digest(packed.Bytes()), nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// read gives the document of a host that was stored before.
func (s *Store) read(name string) (document []byte, path, sum string, err error) {
	path = s.path(name)
	document, sum, err = Document(filepath.Join(s.dir, filepath.FromSlash(path)))
	return document, path, sum, err
}

// Document reads a document that a fleet names, with the digest of its file.
func Document(file string) (document []byte, sum string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	packed, err := readAll(f)
	if err != nil {
		return nil, "", err
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, "", err
	}
	document, err = readAll(z)
	return document, digest(packed), err
}

// readAll reads what a document may have.
func readAll(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err == nil && len(data) > maxDocument {
		err = fmt.Errorf("larger than %d MiB", maxDocument>>20)
	}
	return data, err
}

// Drop removes the documents of hosts that the fleet does not have: they are of an earlier collection.
func (s *Store) Drop(keep func(path string) bool) error {
	entries, err := os.ReadDir(filepath.Join(s.dir, hostsFolder))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if path := hostsFolder + "/" + e.Name(); strings.HasSuffix(path, extension) && e.Type().IsRegular() && !keep(path) {
			err = errors.Join(err, os.Remove(filepath.Join(s.dir, filepath.FromSlash(path))))
		}
	}
	return err
}
