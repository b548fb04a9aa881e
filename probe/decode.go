package probe

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/pkgerr"
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

// Decode reads a topoctl.probe/v1 document and checks everything in it: sizes and counts are
// bounded, names printable, and references to a host, link or pair point to one that is there.
// Unknown keys are ignored, another major version is refused.
func Decode(data []byte) (*Report, error) {
	if len(data) > maxDocument {
		return nil, pkgerr.Errorf("probe", "a report of %d bytes: at most %d are read", len(data), maxDocument)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, pkgerr.New("probe", "empty: not a probe report")
	}
	if err := cmp.Or(checkUTF8(data), checkSchema(schemaName(data), Schema)); err != nil {
		return nil, pkgerr.Errorf("probe", "%w", err)
	}
	in, r := document.NewReader(data), &Report{Schema: Schema}
	if err := r.read(in); err != nil {
		return nil, pkgerr.Errorf("probe", "%w", in.Locate(err))
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

// checkSchema accepts this major version only.
func checkSchema(name, want string) error {
	return document.CheckSchema(name, want, "not a probe report")
}

// read reads the fields of a report, and leaves out those that it does not know.
func (r *Report) read(in *document.Reader) error {
	values := map[string]any{"tool": &r.Tool, "mode": &r.Mode, "started_at": &r.StartedAt, "duration_ns": &r.DurationNS,
		"complete": &r.Complete, "spec": &r.Spec, "rules": &r.Rules, "plan": &r.Plan, "summary": &r.Summary}
	err := in.Object(0, func(key string) error {
		if v, ok := values[key]; ok {
			return in.Value(v, maxElement)
		}
		switch key {
		case "hosts":
			return document.ReadList(in, &r.Hosts, maxHosts, maxElement, nil)
		case "devices":
			return document.ReadList(in, &r.Devices, maxLinks, maxElement, nil)
		case "links":
			return document.ReadList(in, &r.Links, maxLinks, maxElement, (*Link).check)
		case "results":
			return document.ReadList(in, &r.Results, maxResults, maxElement, (*Result).check)
		case "blame":
			return document.ReadList(in, &r.Blame, maxBlame, maxBlameLen, nil)
		case "notes":
			return document.ReadList(in, &r.Notes, maxNotes, maxElement, nil)
		}
		return in.Skip()
	})
	if err != nil {
		return err
	}
	return in.End()
}
