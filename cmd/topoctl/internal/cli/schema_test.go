package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl"
)

// Every published schema is given by its document's name, and every such name is in the list.
func TestSchemas(t *testing.T) {
	var found []string
	root := os.DirFS(filepath.Join("..", "..", "..", ".."))
	err := fs.WalkDir(root, ".", func(at string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(at, ".schema.json") {
			return err
		}
		want, err := fs.ReadFile(root, at)
		if err != nil {
			return err
		}
		var schema struct{ Title string }
		if err := json.Unmarshal(want, &schema); err != nil {
			return err
		}
		found = append(found, schema.Title)
		if got, err := topoctl.Schema(schema.Title); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: Schema(%q) gives %d bytes, %v", at, schema.Title, len(got), err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	listed := published()
	slices.Sort(found)
	slices.Sort(listed)
	if !slices.Equal(listed, found) {
		t.Errorf("schemas of documents: %q\nfiles: %q", listed, found)
	}
	for _, name := range []string{"", "topology", "topology/v1", "topoctl.topology", "topoctl.*/v1", "topoctl.version/v1", "topoctl.../v1"} {
		if data, err := topoctl.Schema(name); !errors.Is(err, fs.ErrNotExist) || data != nil {
			t.Errorf("Schema(%q): %d bytes, %v", name, len(data), err)
		}
	}
}
