package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Reader reads a document piece by piece, so that a count is refused before it costs
// memory, and an error has a place.
type Reader struct {
	data []byte
	dec  *json.Decoder
	at   string // what is being read: "results[17]"
}

// NewReader reads data, whose size its caller has bounded.
func NewReader(data []byte) *Reader {
	return &Reader{data: data, dec: json.NewDecoder(bytes.NewReader(data))}
}

// ErrTooMany is wrapped by the error for a list that is too long, or an object with too
// many keys.
var ErrTooMany = errors.New("too many")

// Object reads an object of at most maxKeys keys; 0 is no bound. For each key it calls
// field, which must read the value.
func (r *Reader) Object(maxKeys int, field func(key string) error) error {
	if err := openObject(r.dec); err != nil {
		return err
	}
	outer := r.at
	for n := 0; r.dec.More(); n++ {
		token, err := r.dec.Token()
		if err != nil {
			return err
		}
		if maxKeys > 0 && n == maxKeys {
			return fmt.Errorf("%w: more than %d keys", ErrTooMany, maxKeys)
		}
		key := token.(string) // the decoder refuses any other
		r.at = key
		if outer != "" {
			r.at = outer + "." + key
		}
		if err := field(key); err != nil {
			return err
		}
	}
	if _, err := r.dec.Token(); err != nil { // the last bracket
		return err
	}
	r.at = outer
	return nil
}

// ReadList appends the elements of a list to out, which may have at most most of them then.
// An element may have maxBytes, 0 is no bound. null is an empty list. check is called for
// each element before the next one is read; it may be nil.
func ReadList[T any](r *Reader, out *[]T, most, maxBytes int, check func(*T) error) error {
	token, err := r.dec.Token()
	if err != nil || token == nil {
		return err
	}
	if token != json.Delim('[') {
		return errors.New("want a list")
	}
	outer := r.at
	for r.dec.More() {
		r.at = fmt.Sprintf("%s[%d]", outer, len(*out))
		if len(*out) == most {
			return fmt.Errorf("%w: at most %d are read", ErrTooMany, most)
		}
		var v T
		if err := r.Value(&v, maxBytes); err != nil {
			return err
		}
		if check != nil {
			if err := check(&v); err != nil {
				return err
			}
		}
		*out = append(*out, v)
	}
	if _, err := r.dec.Token(); err != nil { // the last bracket
		return err
	}
	r.at = outer
	return nil
}

// Value reads a value of at most maxBytes, 0 is no bound.
func (r *Reader) Value(v any, maxBytes int) error {
	var raw json.RawMessage
	if err := r.dec.Decode(&raw); err != nil {
		return err
	}
	if maxBytes > 0 && len(raw) > maxBytes {
		return fmt.Errorf("%d bytes: at most %d are read", len(raw), maxBytes)
	}
	return json.Unmarshal(raw, v)
}

// Skip reads over a value.
func (r *Reader) Skip() error {
	var unknown json.RawMessage
	return r.dec.Decode(&unknown)
}

// End refuses what follows the document.
func (r *Reader) End() error { return atEnd(r.dec) }

// At says what was being read last: "results[17]", "" for the document itself.
func (r *Reader) At() string { return r.at }

// Locate adds to an error of reading the line and what was being read there, or says
// that the document ends in the middle.
func (r *Reader) Locate(err error) error {
	where := ""
	if r.at != "" {
		where = r.at + ": "
	}
	return locate(r.data, int(r.dec.InputOffset()), where, err)
}

// Locate does the same for an error of json.Unmarshal, whose line is known where it is one
// of syntax.
func Locate(data []byte, err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return locate(data, int(syntax.Offset), "", err)
	}
	return err
}

func locate(data []byte, offset int, where string, err error) error {
	syntax, broken := errors.AsType[*json.SyntaxError](err)
	if broken && int(syntax.Offset) >= len(bytes.TrimRight(data, " \t\r\n")) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fmt.Errorf("%sthe document ends in the middle, after %d bytes (line %d): truncated?", where, len(data), 1+bytes.Count(data, []byte{'\n'}))
	}
	line := 1 + bytes.Count(data[:min(offset, len(data))], []byte{'\n'})
	return fmt.Errorf("line %d: %s%w", line, where, err)
}

// openObject reads the bracket that an object begins with.
func openObject(dec *json.Decoder) error {
	token, err := dec.Token()
	if err == nil && token != json.Delim('{') {
		err = errors.New("want an object")
	}
	return err
}

func atEnd(dec *json.Decoder) error {
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the document")
	}
	return nil
}

// CheckSchema accepts a document's schema ("topoctl.probe/v1") where it is the one that is
// wanted, and else says what the reader can do: another major version needs another program.
// missing says what a document without a schema is; "" is nothing that can be told.
func CheckSchema(name, want, missing string) error {
	family, _, _ := strings.Cut(want, "/")
	switch {
	case name == want:
		return nil
	case name == "" && missing == "":
		return fmt.Errorf("no \"schema\" key: want %q", want)
	case name == "":
		return fmt.Errorf("no \"schema\" key: %s (want %q)", missing, want)
	case strings.HasPrefix(name, family+"/"):
		return fmt.Errorf("schema %.40q is newer than this program reads (%q): use a newer topoctl", name, want)
	}
	return fmt.Errorf("schema %.40q is not %q", name, want)
}
