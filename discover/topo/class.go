package topo

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// ClassKind is the family of a Class, ordered from near to far. ClassUnknown
// is the zero value; it is never computed as SYS and ranks after everything.
type ClassKind uint8

// The classes of nvidia-smi topo, and C2C and xGMI beside them.
const (
	ClassUnknown ClassKind = iota
	ClassSelf              // X: the device itself
	ClassNV                // NV#: # bonded NVLinks
	ClassXGMI              // XGMI: AMD's link between GPUs
	ClassC2C               // C2C: NVLink-C2C between a GPU and its CPU
	ClassPIX               // at most one PCIe switch, no host bridge
	ClassPXB               // several PCIe switches, no host bridge
	ClassPHB               // the host bridge
	ClassNODE              // several host bridges of one NUMA node
	ClassSYS               // the link between NUMA nodes
)

var classNames = [...]string{"", "X", "NV", "XGMI", "C2C", "PIX", "PXB", "PHB", "NODE", "SYS"}

// Class is the relation of two devices. Links counts the NVLinks of ClassNV
// and is 0 otherwise.
type Class struct {
	Kind  ClassKind
	Links int
}

// NV is the class of n bonded NVLinks.
func NV(n int) Class { return Class{ClassNV, n} }

// Known says whether the class is known at all.
func (c Class) Known() bool { return c.Kind != ClassUnknown }

// String gives "PIX", "NV18", or "" for unknown.
func (c Class) String() string {
	if int(c.Kind) >= len(classNames) {
		return ""
	}
	if c.Kind == ClassNV {
		return "NV" + strconv.Itoa(c.Links)
	}
	return classNames[c.Kind]
}

// ParseClass reads what String writes; SOC, an old name, is SYS.
func ParseClass(s string) (Class, error) {
	if s == "SOC" {
		return Class{Kind: ClassSYS}, nil
	}
	if n, ok := strings.CutPrefix(s, "NV"); ok {
		count, err := strconv.Atoi(n)
		if err != nil || count < 1 || count > 1024 {
			return Class{}, pkgerr.Errorf("topo", "class %q: NV wants a count of links from 1 to 1024", s)
		}
		return NV(count), nil
	}
	for k, name := range classNames {
		if name == s && ClassKind(k) != ClassUnknown && ClassKind(k) != ClassNV {
			return Class{Kind: ClassKind(k)}, nil
		}
	}
	return Class{}, pkgerr.Errorf("topo", "class %q: want X, NV#, XGMI, C2C, PIX, PXB, PHB, NODE or SYS", s)
}

// Compare orders classes from near to far, more NVLinks first, unknown last.
func (c Class) Compare(o Class) int {
	if c.Known() != o.Known() {
		if c.Known() {
			return -1
		}
		return 1
	}
	if c.Kind != o.Kind {
		return int(c.Kind) - int(o.Kind)
	}
	return o.Links - c.Links
}

// MarshalJSON writes the name, or null for unknown.
func (c Class) MarshalJSON() ([]byte, error) { return encodeName(c.String()) }

// UnmarshalJSON reads what MarshalJSON writes.
func (c *Class) UnmarshalJSON(data []byte) error {
	s, err := decodeName("class", data)
	if err != nil {
		return err
	}
	if s == nil {
		*c = Class{}
		return nil
	}
	v, err := ParseClass(*s)
	if err == nil {
		*c = v
	}
	return err
}

// encodeName is the JSON of a name, null for "".
func encodeName(s string) ([]byte, error) {
	if s == "" {
		return []byte("null"), nil
	}
	return json.Marshal(s)
}

// decodeName reads what encodeName writes; nil is null.
func decodeName(what string, data []byte) (s *string, err error) {
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, pkgerr.Errorf("topo", "%s: %w", what, err)
	}
	return s, nil
}

// NCCLClass is NCCL's path type for a pair, near to far: "LOC", "NVL", "NVB",
// "C2C", "PIX", "PXB", "P2C", "PHB", "SYS"; "" for unknown. NCCL has no NODE:
// one of its CPU nodes is one NUMA node, so its PHB covers PHB and NODE.
// Source: NCCL src/include/graph.h (PATH_*).
type NCCLClass string

const (
	ncclLoc NCCLClass = "LOC"
	ncclNVL NCCLClass = "NVL"
	ncclNVB NCCLClass = "NVB"
	ncclC2C NCCLClass = "C2C"
	ncclPIX NCCLClass = "PIX"
	ncclPXB NCCLClass = "PXB"
	ncclP2C NCCLClass = "P2C"
	ncclPHB NCCLClass = "PHB"
	ncclSYS NCCLClass = "SYS"
)

// MarshalJSON writes the name, or null for unknown.
func (c NCCLClass) MarshalJSON() ([]byte, error) { return encodeName(string(c)) }

// UnmarshalJSON reads what MarshalJSON writes.
func (c *NCCLClass) UnmarshalJSON(data []byte) error {
	s, err := decodeName("nccl class", data)
	if err != nil {
		return err
	}
	*c = ""
	if s != nil {
		*c = NCCLClass(*s)
	}
	return nil
}
