// Package secret reads the token that engines share.
package secret

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// MinBytes is how many bytes a token must have; the engine refuses less.
const MinBytes = 16

// maxBytes bounds what is read: a secret, not a disk image.
const maxBytes = 4 << 10

// ShortError is the length of a token that is too short.
type ShortError int

func (n ShortError) Error() string {
	return fmt.Sprintf("the token has %d bytes, want %d or more", int(n), MinBytes)
}

// Read reads up to the end of the first line and not a byte further: what follows on standard
// input is somebody else's. Blanks at both ends do not count.
func Read(in io.Reader) ([]byte, error) {
	line, err := firstLine(in)
	if err == nil && len(line) < MinBytes {
		err = ShortError(len(line))
	}
	if err != nil {
		return nil, err
	}
	return line, nil
}

func firstLine(in io.Reader) ([]byte, error) {
	if _, ok := in.(io.ByteReader); !ok {
		in = &byteReader{in}
	}
	var out []byte
	for {
		b, err := in.(io.ByteReader).ReadByte()
		switch {
		case errors.Is(err, io.EOF) || b == '\n' && err == nil:
			return []byte(strings.TrimSpace(string(out))), nil
		case err != nil:
			return nil, err
		case len(out) == maxBytes:
			return nil, fmt.Errorf("the first line is longer than %d bytes", maxBytes)
		}
		out = append(out, b)
	}
}

// byteReader reads single bytes, without a buffer.
type byteReader struct{ io.Reader }

func (r *byteReader) ReadByte() (byte, error) {
	var b [1]byte
	_, err := io.ReadFull(r.Reader, b[:])
	return b[0], err
}
