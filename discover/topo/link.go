package topo

import (
	"cmp"
	"fmt"
	"slices"
)

// LinkKind says what a link is.
type LinkKind string

// The kinds of link.
const (
	LinkPCIe        LinkKind = "pcie"         // a PCIe link, between a port and what is below it
	LinkRootComplex LinkKind = "root_complex" // between a root bus and its NUMA node's memory and CPUs
	LinkSocket      LinkKind = "smp"          // between NUMA nodes: UPI, QPI, xGMI, NVLink-C2C between sockets
	LinkNVLink      LinkKind = "nvlink"
	LinkXGMI        LinkKind = "xgmi"
	LinkC2C         LinkKind = "c2c"  // NVLink-C2C between a GPU and its CPU
	LinkPort        LinkKind = "port" // an RDMA device's network port, or a netdev's wire
)

// Basis says how a rate is known. Only a rate that was measured or read proves anything: a
// typical one and a bound may make a probe warn, never fail.
type Basis string

// How a rate is known, best first.
const (
	BasisMeasured Basis = "measured" // an Overlay's figure
	BasisRead     Basis = "read"     // the hardware said so
	BasisBound    Basis = "bound"    // not more than that: something on the way has no known rate
	BasisTypical  Basis = "typical"  // a constant by model: there may be less, and more
	BasisUnknown  Basis = "unknown"  // no rate at all
)

var basisOrder = []Basis{BasisMeasured, BasisRead, BasisBound, BasisTypical, BasisUnknown}

// Compare orders bases from the surest to none; what rests on several rates is known
// as well as the weakest of them.
func (b Basis) Compare(other Basis) int {
	return cmp.Compare(slices.Index(basisOrder, b), slices.Index(basisOrder, other))
}

// Sure says whether the rate is what there is.
func (b Basis) Sure() bool { return b == BasisMeasured || b == BasisRead }

// Bounded is the basis of a rate beside links of unknown rate: what is sure of the links that are
// known is a bound then, and what is typical stays typical.
func (b Basis) Bounded() Basis {
	if b.Sure() {
		return BasisBound
	}
	return b
}

// Text is a rate for people, given its figure in words: as it is where the rate is sure,
// "~22.0 GB/s" where it is typical, "at most 50.0 GB/s" where it is a bound.
func (b Basis) Text(figure string) string {
	if b == BasisBound {
		return "at most " + figure
	}
	return b.Mark(figure)
}

// Mark is Text where there is little room: a bound is "<50.0".
func (b Basis) Mark(figure string) string {
	switch b {
	case BasisBound:
		return "<" + figure
	case BasisTypical:
		return "~" + figure
	}
	return figure
}

// UnmarshalText takes the names that documents had before, too.
func (b *Basis) UnmarshalText(text []byte) error {
	switch *b = Basis(text); *b {
	case "constant":
		*b = BasisTypical
	case "assumed":
		*b = BasisBound
	}
	return nil
}

// LinkID names a link within one host: "pcie:0000:18:00.0" (the link above
// that function), "rc:0000:17", "smp:0/1", "nvlink:gpu:0/gpu:1",
// "port:mlx5_0/1".
type LinkID string

// Link is one edge of the graph. Its rate holds in each direction separately.
type Link struct {
	ID   LinkID   `json:"id"`
	Kind LinkKind `json:"kind"`
	A    ID       `json:"a"` // nearer to the root, or the smaller ID
	B    ID       `json:"b"`
	// Cur and Max are what the link runs at and could run at; PCIe only.
	Cur *LaneRate `json:"current,omitempty"`
	Max *LaneRate `json:"max,omitempty"`
	// Count is the number of bonded NVLink or xGMI links.
	Count int `json:"count,omitempty"`
	// BytesPerSec is the expected rate in one direction; nil is unknown.
	BytesPerSec *Rate `json:"bytes_per_sec"`
	Basis       Basis `json:"basis"`
	// Bound is what the link cannot exceed by published figures, where BytesPerSec is typical; nil is
	// not known.
	Bound *Rate  `json:"bound_bytes_per_sec,omitempty"`
	Note  string `json:"note,omitempty"` // why the rate is what it is
	Facts Facts  `json:"-"`
}

// LaneRate is a PCIe link state.
type LaneRate struct {
	SpeedMTs    int  `json:"speed_mts"`
	Width       int  `json:"width"`
	BytesPerSec Rate `json:"bytes_per_sec"`
}

// NVLinkID is the link of a pair of GPUs (or a GPU and an NVSwitch).
func NVLinkID(a, b ID) LinkID { return LinkID(fmt.Sprintf("nvlink:%s/%s", a, b)) }

// XGMILinkID is the xGMI link of a pair of GPUs.
func XGMILinkID(a, b ID) LinkID { return LinkID(fmt.Sprintf("xgmi:%s/%s", a, b)) }

// C2CLinkID is a GPU's link to its CPU.
func C2CLinkID(gpu ID) LinkID { return LinkID("c2c:" + string(gpu)) }

// PCIeLinkID is the link above a function.
func PCIeLinkID(b BDF) LinkID { return LinkID("pcie:" + b.String()) }
