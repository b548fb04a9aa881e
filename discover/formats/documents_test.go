package formats_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/formats/hwlocxml"
	"github.com/topoctl/topoctl/discover/formats/ncclxml"
	"github.com/topoctl/topoctl/discover/formats/texts"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
)

// What is read of files by hand, in the testdata of each format, and of published files.
func TestDocuments(t *testing.T) {
	for _, format := range []struct {
		name      string
		published string
		decode    func([]byte) (*topo.Topology, error)
	}{
		{"ncclxml", "nccl-xml/*.xml", ncclxml.Decode},
		{"hwlocxml", "captures/hwloc-xml/*.xml.gz", hwlocxml.Decode},
		{"texts", "topo-matrices/*.txt", texts.Decode},
	} {
		files := fixturetest.PublishedIfThere(t, format.published)
		delete(files, "azure-ncv4-graph") // channels, no topology
		paths, err := filepath.Glob(format.name + "/testdata/*.*")
		if err != nil || len(paths) == 0 {
			t.Fatal(paths, err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			files[strings.ReplaceAll(filepath.Base(path), ".", "-")] = data
		}
		for name, data := range files {
			t.Run(format.name+" "+name, func(t *testing.T) {
				top, err := format.decode(data)
				if err != nil {
					t.Fatal(err)
				}
				document, err := top.Encode()
				if err != nil {
					t.Fatal(err)
				}
				golden.CheckPacked(t, "testdata/"+format.name+"/"+name+".json.gz", document)
			})
		}
	}
}
