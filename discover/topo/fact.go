package topo

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Source names where a fact came from.
type Source string

// The sources of facts. The readers of discover/formats have others beside these.
const (
	SourceSysfs   Source = "sysfs"        // a file of /sys
	SourceProc    Source = "proc"         // a file of /proc
	SourceDev     Source = "dev"          // presence and permission of a device file
	SourceConfig  Source = "config"       // PCI configuration space (sysfs config)
	SourceGHW     Source = "ghw"          // github.com/jaypipes/ghw (names from pci.ids)
	SourceRDMAMap Source = "rdmamap"      // github.com/Mellanox/rdmamap
	SourceNetlink Source = "netlink"      // rtnetlink and RDMA netlink
	SourceNVML    Source = "nvml"         // NVIDIA Management Library
	SourceDerived Source = "derived"      // computed from other facts of the same host
	SourceNCCL    Source = "import:nccl"  // a NCCL or RCCL topology XML
	SourceHwloc   Source = "import:hwloc" // a hwloc XML
	SourceSMI     Source = "import:nvsmi" // the text of nvidia-smi topo -m or rocm-smi --showtopo
	SourceRemap   Source = "remap"        // topoctl remap: the topology of a virtual machine's host
)

// Fact is the provenance of one attribute of a node: Name is the attribute's
// JSON key, Source where it came from, Where the place: a path relative to the
// node's evidence, an absolute path, or a call ("nvmlDeviceGetUUID"); empty
// means the node's evidence itself, and a name in braces stands for the node's
// own, as in "/proc/driver/nvidia/gpus/{bdf}/information".
type Fact struct {
	Name   string
	Source Source
	Where  string
}

// Facts are the provenance of a node's attributes, ordered by name.
// In JSON they are an object, {"numa_node": "sysfs:numa_node"}.
type Facts []Fact

// Set records or replaces where an attribute came from.
func (f *Facts) Set(name string, source Source, where string) {
	i, found := slices.BinarySearchFunc(*f, name, func(x Fact, n string) int { return strings.Compare(x.Name, n) })
	if found {
		(*f)[i] = Fact{name, source, where}
		return
	}
	*f = slices.Insert(*f, i, Fact{name, source, where})
}

// Get says where an attribute came from.
func (f Facts) Get(name string) (Fact, bool) {
	i, found := slices.BinarySearchFunc(f, name, func(x Fact, n string) int { return strings.Compare(x.Name, n) })
	if !found {
		return Fact{}, false
	}
	return f[i], true
}

func (x Fact) value() string {
	if x.Where == "" {
		return string(x.Source)
	}
	return string(x.Source) + " " + x.Where
}

// key is equal for equal facts.
func (f Facts) key() string {
	var b strings.Builder
	for _, x := range f {
		b.WriteString(x.Name)
		b.WriteByte('=')
		b.WriteString(string(x.Source))
		b.WriteByte(' ')
		b.WriteString(x.Where)
		b.WriteByte('\n')
	}
	return b.String()
}

// MarshalJSON writes the facts as one object with sorted keys.
func (f Facts) MarshalJSON() ([]byte, error) {
	m := make(map[string]string, len(f))
	for _, x := range f {
		m[x.Name] = x.value()
	}
	return json.Marshal(m)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (f *Facts) UnmarshalJSON(data []byte) error {
	var m map[string]string
	if err := json.Unmarshal(data, &m); err != nil {
		return pkgerr.Errorf("topo", "facts: %w", err)
	}
	*f = make(Facts, 0, len(m))
	for name, v := range m {
		source, where, _ := strings.Cut(v, " ")
		*f = append(*f, Fact{name, Source(source), where})
	}
	slices.SortFunc(*f, func(a, b Fact) int { return strings.Compare(a.Name, b.Name) })
	return nil
}
