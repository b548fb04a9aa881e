package sysfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/hosttree"
)

// TestFixtureMissingFiles: each patch that takes something away has
// its warning. The others cost nothing that every machine has: product_name is
// of the DMI tables, and a GPU's configuration space is not asked.
func TestFixtureMissingFiles(t *testing.T) {
	const name = "dgx-h100-missing-files"
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "fixtures", "machines", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	tree, err := fixtures.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	top := Read(tree.(hosttree.Tree), false)
	silent := 0
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(strings.Trim(line, "-{} \n"))
		if len(words) < 2 || words[0] != "remove:" && words[0] != "unreadable:" {
			continue
		}
		path := "/" + strings.TrimSuffix(words[1], ",")
		if strings.HasSuffix(path, "/product_name") || strings.HasSuffix(path, "/0000:9d:00.0/config") {
			silent++
			continue
		}
		if strings.HasPrefix(path, "/sys/devices/pci") {
			path = "/" + pciDevices + path[strings.LastIndexByte(path, '/'):]
		}
		named := false
		for _, w := range top.Warnings {
			named = named || w.Evidence == path && (w.Partial() || w.Code == topo.CodeNUMAGuessed)
		}
		if !named {
			t.Errorf("no warning names %s", path)
		}
	}
	if len(top.Warnings) != 11 || silent != 2 {
		t.Errorf("%d warnings: %q", len(top.Warnings), texts(top.Warnings))
	}
}
