package diagram

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/discover/topo/hwlocxml"
	"github.com/topoctl/topoctl/discover/topo/ncclxml"
	"github.com/topoctl/topoctl/discover/topo/nvsmi"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/base/fixturetest"
)

// shared holds files of real hosts that are not part of this module.
const shared = "../../../../shared/data"

// imports are the files of other tools among the shared data, decoded.
func imports(t testing.TB) map[string]*topo.Topology {
	t.Helper()
	out := map[string]*topo.Topology{}
	read := func(pattern string, decode func([]byte) (*topo.Topology, error)) {
		files, err := filepath.Glob(filepath.Join(shared, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			host, err := decode(unpacked(t, file))
			if err != nil {
				t.Logf("%s: %v", file, err) // NCCL's graph files are no topologies
				continue
			}
			out[strings.SplitN(filepath.Base(file), ".", 2)[0]+"-"+filepath.Base(filepath.Dir(file))] = host
		}
	}
	read("nccl-xml/*.xml", ncclxml.Decode)
	read("captures/hwloc-xml/*.xml.gz", hwlocxml.Decode)
	read("topo-matrices/*.txt", nvsmi.Decode)
	return out
}

func unpacked(t testing.TB, file string) []byte {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var in io.Reader = f
	if strings.HasSuffix(file, ".gz") {
		if in, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	data, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// hosts are all fixtures and imports, by name.
func hosts(t testing.TB) map[string]*topo.Topology {
	t.Helper()
	out := imports(t)
	if len(out) == 0 {
		t.Logf("%s is not here: imports are left out", shared)
	}
	for _, name := range append(fixtures.Names(), "empty") {
		out[name] = fixturetest.Topology(t, name)
	}
	return out
}
