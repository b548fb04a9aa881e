package probe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// What a report may hold at most. A run of 128 hosts with 8 ports each, every port with
// its own kind, has 130,000 results of about 2 kB.
const (
	maxDocument = 1 << 30 // bytes
	maxResults  = 1 << 20
	maxLinks    = 1 << 20
	maxHosts    = 1 << 14
	maxBlame    = 1 << 14
	maxNotes    = 1 << 12
	maxElement  = 1 << 22 // bytes of one element of a list
	maxBlameLen = 1 << 26 // bytes of one Blame, which lists pairs
)

// Decode reads a topoctl.probe/v1 document and takes nothing in it on trust: sizes and
// counts are bounded, names printable, and what refers to a host, link or pair refers to
// one that is there. Unknown keys are left out, another major version is refused.
func Decode(data []byte) (*Report, error) {
	if len(data) > maxDocument {
		return nil, fmt.Errorf("probe: a report of %d bytes: at most %d are read", len(data), maxDocument)
	}
	if err := first(checkUTF8(data), checkSchema(schemaName(data), Schema)); err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	d := decoder{dec: json.NewDecoder(bytes.NewReader(data))}
	r := &Report{Schema: Schema}
	if err := d.report(r); err != nil {
		return nil, d.explain(data, err)
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	return r, nil
}

// checkUTF8 says where data is no text.
func checkUTF8(data []byte) error {
	if utf8.Valid(data) {
		return nil
	}
	for i := 0; i < len(data); {
		c, size := utf8.DecodeRune(data[i:])
		if c == utf8.RuneError && size == 1 {
			return fmt.Errorf("byte %d (0x%02x) is not UTF-8: not a report, or damaged", i, data[i])
		}
		i += size
	}
	return nil
}

// schemaName is what a document says it is, "" for one that does not say. A document
// that begins with it is read no further.
func schemaName(data []byte) string {
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return ""
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return ""
		}
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return ""
		}
		if key == "schema" {
			name := ""
			_ = json.Unmarshal(value, &name) // something else is no name
			return name
		}
	}
	return ""
}

// checkSchema accepts this major version only, and says what a reader can do.
func checkSchema(name, want string) error {
	family, _, _ := strings.Cut(want, "/")
	switch {
	case name == want:
		return nil
	case name == "":
		return fmt.Errorf("no \"schema\" key: not a probe report (want %q)", want)
	case strings.HasPrefix(name, family+"/"):
		return fmt.Errorf("schema %.40q is newer than this program reads (%q): use a newer topoctl", name, want)
	}
	return fmt.Errorf("schema %.40q is not %q", name, want)
}

// decoder reads a report an element at a time, so that a count is refused before it
// costs memory, and an error has a place.
type decoder struct {
	dec *json.Decoder
	at  string // what is being read: "results[17]"
}

var errTooMany = errors.New("too many")

func (d *decoder) report(r *Report) error {
	if t, err := d.dec.Token(); err != nil || t != json.Delim('{') {
		return errors.Join(err, errors.New("want an object"))
	}
	for d.dec.More() {
		key, err := d.dec.Token()
		if err != nil {
			return err
		}
		d.at, _ = key.(string)
		if err := d.field(r, d.at); err != nil {
			return err
		}
	}
	if _, err := d.dec.Token(); err != nil { // the last bracket
		return err
	}
	if _, err := d.dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the report")
	}
	return nil
}

// field reads the value of one key.
func (d *decoder) field(r *Report, key string) error {
	switch key {
	case "tool":
		return d.one(&r.Tool)
	case "mode":
		return d.one(&r.Mode)
	case "started_at":
		return d.one(&r.StartedAt)
	case "duration_ns":
		return d.one(&r.DurationNS)
	case "complete":
		return d.one(&r.Complete)
	case "spec":
		return d.one(&r.Spec)
	case "rules":
		return d.one(&r.Rules)
	case "plan":
		return d.one(&r.Plan)
	case "summary":
		return d.one(&r.Summary)
	case "hosts":
		return each(d, &r.Hosts, maxHosts, maxElement, nil)
	case "devices":
		return each(d, &r.Devices, maxLinks, maxElement, nil)
	case "links":
		return each(d, &r.Links, maxLinks, maxElement, (*Link).check)
	case "results":
		return each(d, &r.Results, maxResults, maxElement, (*Result).check)
	case "blame":
		return each(d, &r.Blame, maxBlame, maxBlameLen, nil)
	case "notes":
		return each(d, &r.Notes, maxNotes, maxElement, nil)
	}
	var unknown json.RawMessage
	return d.dec.Decode(&unknown)
}

// one reads a value that is no list.
func (d *decoder) one(v any) error {
	var raw json.RawMessage
	if err := d.dec.Decode(&raw); err != nil {
		return err
	}
	if len(raw) > maxElement {
		return fmt.Errorf("%d bytes: at most %d are read", len(raw), maxElement)
	}
	return json.Unmarshal(raw, v)
}

// each reads a list and checks its elements; null is an empty one.
func each[T any](d *decoder, out *[]T, most, size int, check func(*T) error) error {
	name := d.at
	t, err := d.dec.Token()
	if err != nil || t == nil {
		return err
	}
	if t != json.Delim('[') {
		return errors.New("want a list")
	}
	for d.dec.More() {
		d.at = fmt.Sprintf("%s[%d]", name, len(*out))
		if len(*out) == most {
			return fmt.Errorf("%w: at most %d are read", errTooMany, most)
		}
		var raw json.RawMessage
		if err := d.dec.Decode(&raw); err != nil {
			return err
		}
		if len(raw) > size {
			return fmt.Errorf("%d bytes: at most %d are read", len(raw), size)
		}
		var v T
		if err := json.Unmarshal(raw, &v); err != nil {
			return err
		}
		if check != nil {
			if err := check(&v); err != nil {
				return err
			}
		}
		*out = append(*out, v)
	}
	_, err = d.dec.Token() // the last bracket
	return err
}

// explain turns an error into one line that says where.
func (d *decoder) explain(data []byte, err error) error {
	where := ""
	if d.at != "" {
		where = d.at + ": "
	}
	var syntax *json.SyntaxError
	atEnd := errors.As(err, &syntax) && int(syntax.Offset) >= len(bytes.TrimRight(data, " \t\r\n"))
	if atEnd || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fmt.Errorf("probe: %sthe report ends in the middle, after %d bytes (line %d): truncated?", where, len(data), 1+bytes.Count(data, []byte{'\n'}))
	}
	line := 1 + bytes.Count(data[:min(int(d.dec.InputOffset()), len(data))], []byte{'\n'})
	return fmt.Errorf("probe: line %d: %s%w", line, where, err)
}
