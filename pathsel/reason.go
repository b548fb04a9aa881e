package pathsel

// Reason is one fact that a decision rests on: a code, a sentence for people
// and where the fact was read ("" where there is no such place).
type Reason struct {
	Code     Code   `json:"code"`
	Text     string `json:"text"`
	Evidence string `json:"evidence,omitempty"`
}

// Code names a reason. Codes are stable: scripts match on them. The constants are the
// codes that programs act on; reason.go lists all of them.
type Code string

// The codes that programs act on.
const (
	CodeBest         Code = "best"           // nothing ranks before it
	CodeSpare        Code = "nobody-nearer"  // in a plan: the consumer has better ports too, and this one would be idle
	CodePortDown     Code = "port-down"      // not ACTIVE, or the interface is not up
	CodeFallback     Code = "fallback"       // the nearest port is out of use: what the plan for all gives instead
	CodeNotForData   Code = "not-for-data"   // storage, management or decoy beside data ports
	CodeOverride     Code = "override"       // the user said so
	CodeLinkLocal    Code = "gid-link-local" // its GIDs are link-local only: peers on the same link reach it, no others
	CodeStateUnknown Code = "state-unknown"  // the origin does not tell the port's state
	CodeOneCable     Code = "one-cable"      // it shares its wire with another function of the adapter
	CodeBond         Code = "bond"           // several legs: one connection uses one of them
	CodeNearHidden   Code = "near-hidden"    // which NICs are near is not visible in this virtual machine
	CodeNearUnknown  Code = "near-unknown"   // the origin does not tell which NICs are near
)

// Repairable says whether a port that is rejected for this reason is one that could be
// used after a repair: it is down, or lacks an address or permission.
func (c Code) Repairable() bool {
	switch c {
	case CodePortDown, codeTakenDown, codeNoAccess, codeNoGID, codeNoLID, codeNoAddress:
		return true
	}
	return false
}

// Why a port ranks where it does: the first criterion that sets it behind the one
// before, in the order of importance.
const (
	codeUsable Code = "usable" // the port before it is more certainly usable
	codeRole   Code = "role"   // the port before it is made for data
	codeClass  Code = "class"  // the one before it is nearer
	codeRate   Code = "rate"   // the one before it is faster
	codeHops   Code = "hops"   // the one before it has fewer links on the way
	codeLoad   Code = "load"   // the one before it has less to do
	codeName   Code = "name"   // all else equal: the order of names

	codeVirtualFunction Code = "vf" // a note: it shares the wire and slot of its physical function
)

const codeAddressUnknown Code = "address-unknown" // a note: the origin does not tell the port's addresses

// Why a port cannot be used.
const (
	codeTakenDown Code = "taken-down" // Options.Down has it
	codeNoAccess  Code = "no-access"  // its device file cannot be used by this process
	codeNoGID     Code = "no-gid"     // its GID table has no entry
	codeNoLID     Code = "no-lid"     // InfiniBand without an address from the subnet manager
	codeNoAddress Code = "no-address" // no IP address to connect from
	codeNoRDMA    Code = "no-rdma"    // an interface without RDMA device, RDMA is wanted
	codeNoNetdev  Code = "no-netdev"  // an RDMA device without interface, TCP is wanted
	codeSoftware  Code = "software"   // software RDMA beside hardware
	codeVirtual   Code = "virtual"    // a container's interface beside physical ones
	codeBondLeg   Code = "bond-leg"   // a further leg of a bond, over TCP
	codeVF        Code = "vf-of-pf"   // a virtual function whose physical function is usable itself
)

// Why a port has its role.
const (
	codeManagesNV    Code = "nvlink-mgmt"   // a ConnectX that manages NVLink switches
	codeNarrow       Code = "narrow"        // a slot that was never wide enough for the port
	codeSlow         Code = "slow"          // a fraction of the fastest port's rate
	codeDefaultRoute Code = "default-route" // the host's way to everywhere; of two ports, their only way to each other
	codeOtherFabric  Code = "other-fabric"  // another link layer or rate than the data ports
	codeSameCard     Code = "same-card"     // an interface on the card of a management port
	codeNoGPUBeside  Code = "no-gpu-beside" // every GPU has a port of its own switch, and this is none
	codeBesideGPU    Code = "beside-gpu"    // shares a PCIe switch with a GPU
	codeWhichFabric  Code = "which-fabric"  // Ethernet beside InfiniBand, and their rates do not tell which is for data
	codeNoOther      Code = "no-other"      // nothing sets it apart from the others
)

// Why a consumer of a plan has a port that is neither CodeBest nor CodeSpare for it.
const codeBalance Code = "balance" // the better ones have their part of the consumers

// Why two ports reach each other, or may.
const (
	codeSameSubnet    Code = "same-subnet"           // one IP network or InfiniBand subnet
	codeRouted        Code = "routed"                // routes of both interfaces cover the other's address
	codeSameLeaf      Code = "same-leaf"             // the fabric file has both on one switch
	codeDefaultPrefix Code = "default-subnet-prefix" // InfiniBand: both have the prefix that every subnet has unless told otherwise
	codeReachUnknown  Code = "reach-unknown"         // something that decides is not known
	codeRailUnknown   Code = "rail-unknown"          // a rail-only fabric, and a port whose rail is not known
	codePKeyUnknown   Code = "pkey-unknown"          // a partition key table is not known
	codeProvider      Code = "provider-network"      // EFA: the cloud decides, hosts do not see it
	codeSameAddress   Code = "same-address"          // both hosts have one address
	codeLoopback      Code = "loopback"              // one port, to itself
	codeTwins         Code = "twins"                 // both topologies are of one machine
)

// Why two ports do not reach each other.
const (
	codeProtocol    Code = "protocol"     // they speak different protocols
	codeOtherSubnet Code = "other-subnet" // InfiniBand: different subnet prefixes
	codeNoRoute     Code = "no-route"     // different IP networks, and no route of the interface
	codeGIDType     Code = "gid-type"     // no GID type that both have
	codePKey        Code = "pkey"         // no common partition
	codePKeyLimited Code = "pkey-limited" // both are limited members of their common partitions
	codeOtherPlane  Code = "other-plane"  // the fabric file has them in different planes
	codeOtherRail   Code = "other-rail"   // different rails of a rail-only fabric
	codeFabricGap   Code = "fabric-file"  // the fabric file and the host do not fit together
)

// Why a lane is chosen or not.
const (
	codeAdds        Code = "adds"         // it adds bandwidth to the ones before it
	codeSaturated   Code = "saturated"    // a link on its way is full with the chosen lanes
	codeAddsLittle  Code = "adds-little"  // what it adds is not worth it
	codeUpperBound  Code = "upper-bound"  // what it adds is not sure: a link on its way has no known rate
	codeDoubtful    Code = "doubtful"     // the ports may not reach each other, those of chosen lanes do
	codeNotAssigned Code = "not-assigned" // it ends at a port of another process
	codeNoRate      Code = "no-rate"      // a link on its way carries no data
	codeRateGap     Code = "rate-unknown" // nothing is known of its rate
	codeRail        Code = "rail"         // a note: what the fabric file says of both ports
)

// Verdict is the result of a decision for a port or a lane.
type Verdict string

// The verdicts, of ports and then of lanes.
const (
	Preferred Verdict = "preferred" // as good as the best on role, class and rate
	Available Verdict = "available" // usable, farther or slower: for more bandwidth or failover
	Rejected  Verdict = "rejected"

	Chosen   Verdict = "chosen"   // carries its part of every large transfer
	Failover Verdict = "failover" // adds nothing to the chosen lanes; used when one of them fails
)
