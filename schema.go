package topoctl

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

//go:embed */schema/*.json */*/schema/*.json */*/*/schema/*.json
var schemas embed.FS

// Schema is the JSON Schema of the documents called name ("topoctl.topology/v1"), for programs that check or
// read them. The error wraps fs.ErrNotExist if the document has no schema.
func Schema(name string) (data []byte, err error) {
	rest, ours := strings.CutPrefix(name, "topoctl.")
	file := strings.ReplaceAll(rest, "/", ".") + ".schema.json"
	err = fs.WalkDir(schemas, ".", func(at string, _ fs.DirEntry, err error) error {
		if err != nil || !ours || path.Base(at) != file {
			return err
		}
		if data, err = schemas.ReadFile(at); err != nil {
			return err
		}
		return fs.SkipAll
	})
	if err == nil && data == nil {
		err = fmt.Errorf("no JSON Schema is called %q, see the command topoctl schema: %w", name, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("topoctl: %w", err)
	}
	return data, nil
}
