package document

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unicode/utf16"

	"github.com/topoctl/topoctl/internal/units"
)

// ErrTar is the error for a tar archive.
var ErrTar = errors.New("is a tar archive")

// Unpack is the content of a file: unpacked if gzip has compressed it, and text in UTF-8 without a byte order mark.
// It refuses what has more than most bytes, and what is empty or a tar archive.
func Unpack(data []byte, most int) ([]byte, error) {
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) && len(data) <= most {
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		data, err = io.ReadAll(io.LimitReader(z, int64(most)+1))
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil, errors.New("ends in the middle of the gzip data: truncated?")
		case err != nil:
			return nil, err
		}
	}
	if len(data) > most {
		return nil, fmt.Errorf("larger than %s: not a topology", units.Bytes(int64(most)))
	}
	data = utf8Text(data)
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return nil, errors.New("is empty")
	case len(data) > 262 && string(data[257:262]) == "ustar":
		return nil, ErrTar
	}
	return data, nil
}

// utf8Text is a text in UTF-8 without a byte order mark. Redirected output of PowerShell is UTF-16 with one.
func utf8Text(data []byte) []byte {
	var order binary.ByteOrder = binary.LittleEndian
	switch {
	case bytes.HasPrefix(data, []byte{0xff, 0xfe}):
	case bytes.HasPrefix(data, []byte{0xfe, 0xff}):
		order = binary.BigEndian
	default:
		return bytes.TrimPrefix(data, []byte("\ufeff"))
	}
	units := make([]uint16, len(data)/2-1)
	for i := range units {
		units[i] = order.Uint16(data[2+2*i:])
	}
	return []byte(string(utf16.Decode(units)))
}
