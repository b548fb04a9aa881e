package discover

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// maxAnswers bounds a recorded answer. A rack of 72 GPUs takes 300 kB, a host
// with a thousand interfaces 400 kB.
const maxAnswers = 16 << 20

// replay reads a recorded answer from a tree; found is false if the tree has no such file.
func replay(tree fs.FS, name, schema string, into any) (found bool, err error) {
	f, err := tree.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxAnswers+1))
	if err != nil {
		return true, err
	}
	return true, decodeAnswers(data, name, schema, into)
}

// decodeAnswers decodes a recorded answer of the given schema. It ignores unknown
// keys, which a newer minor version may have, and refuses another major version.
func decodeAnswers(data []byte, name, schema string, into any) error {
	if len(data) > maxAnswers {
		return fmt.Errorf("%s: more than %d bytes", name, maxAnswers)
	}
	var head struct {
		Schema string `json:"schema"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	kind, _, _ := strings.Cut(schema, "/")
	switch {
	case head.Schema == schema:
	case strings.HasPrefix(head.Schema, kind+"/v"):
		return fmt.Errorf("%s: schema %q is of another version; this program reads %s", name, head.Schema, schema)
	default:
		return fmt.Errorf("%s: schema %q: want %s", name, head.Schema, schema)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
