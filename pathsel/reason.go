package pathsel

import "github.com/topoctl/topoctl/discover/topo"

// Code names a reason. Codes are stable: scripts match on them.
type Code string

// Why a port was chosen or ranks where it does: the first criterion that sets
// it behind the one before, in the order of importance.
const (
	CodeBest   Code = "best"   // nothing ranks before it
	CodeEqual  Code = "equal"  // as good as the best
	CodeUsable Code = "usable" // the port before it is more certainly usable
	CodeRole   Code = "role"   // the port before it is made for data
	CodeClass  Code = "class"  // the one before it is nearer
	CodeRate   Code = "rate"   // the one before it is faster
	CodeHops   Code = "hops"   // the one before it has fewer links on the way
	CodeLoad   Code = "load"   // the one before it has less to do
	CodeName   Code = "name"   // all else equal: the order of names
)

// Why a port is rejected.
const (
	CodePortDown   Code = "port-down"    // not ACTIVE, or the interface is not up
	CodeNoAccess   Code = "no-access"    // its device file cannot be used by this process
	CodeNoGID      Code = "no-gid"       // its GID table has no entry
	CodeNoLID      Code = "no-lid"       // InfiniBand without an address from the subnet manager
	CodeNoAddress  Code = "no-address"   // no IP address to connect from
	CodeNoRDMA     Code = "no-rdma"      // an interface without RDMA device, RDMA is wanted
	CodeNoNetdev   Code = "no-netdev"    // an RDMA device without interface, TCP is wanted
	CodeSoftware   Code = "software"     // software RDMA beside hardware
	CodeVirtual    Code = "virtual"      // a container's interface beside physical ones
	CodeBondLeg    Code = "bond-leg"     // a further leg of a bond, over TCP
	CodeVF         Code = "vf-of-pf"     // a virtual function whose physical function is usable itself
	CodeNotForData Code = "not-for-data" // storage, management or decoy beside data ports
)

// What else there is to know of a port.
const (
	CodeBond            Code = "bond" // several legs: one connection uses one of them
	CodeVirtualFunction Code = "vf"   // it shares the wire and slot of its physical function
)

// Why a port is less certainly usable than another.
const (
	CodeLinkLocal    Code = "gid-link-local" // its GIDs are link-local only: peers on the same link reach it, no others
	CodeStateUnknown Code = "state-unknown"  // the origin does not tell the port's state
)

// Repairable says whether a port that is rejected for this reason is one that could be
// used after a repair: it is down, or lacks an address or permission.
func (c Code) Repairable() bool {
	switch c {
	case CodePortDown, CodeNoAccess, CodeNoGID, CodeNoLID, CodeNoAddress:
		return true
	}
	return false
}

// Reason is one fact that a decision rests on: a code, a sentence for people
// and where the fact was read ("" where there is no such place).
type Reason struct {
	Code     Code   `json:"code"`
	Text     string `json:"text"`
	Evidence string `json:"evidence,omitempty"`
}

// Verdict sums up what a decision says of a candidate.
type Verdict string

// The verdicts.
const (
	Preferred Verdict = "preferred" // as good as the best on role, class and rate
	Available Verdict = "available" // usable, farther or slower: for more bandwidth or failover
	Rejected  Verdict = "rejected"
)

// Role is what a NIC is there for.
type Role string

// The roles, best first.
const (
	RoleData       Role = "data"
	RoleUnknown    Role = "unknown"
	RoleStorage    Role = "storage" // another fabric, or away from the GPUs: storage or in-band network
	RoleManagement Role = "management"
	RoleDecoy      Role = "decoy" // looks like a data NIC and must not carry data
)

// roleOrder ranks roles: data first, decoys never used.
var roleOrder = map[Role]int{RoleData: 0, RoleUnknown: 1, RoleStorage: 2, RoleManagement: 3, RoleDecoy: 4}

// Transport is the way of moving data that ports are wanted for.
type Transport string

// The transports. Auto is RDMA where a usable RDMA port exists, else TCP.
const (
	Auto Transport = ""
	RDMA Transport = "rdma"
	TCP  Transport = "tcp"
)

// Options say what a Host is prepared for.
type Options struct {
	// Transport is what ports are wanted for.
	Transport Transport
	// Roles overrides the role of NICs, by matrix NIC ID ("rdma:mlx5_0", "net:eth0").
	Roles map[topo.ID]Role
	// Overlay holds measured rates of links, which replace the expected ones.
	Overlay topo.Overlay
}
