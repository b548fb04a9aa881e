package diff

import (
	"time"

	"github.com/topoctl/topoctl/discover/topo"
)

// Schema is the name and major version of the report's document.
const Schema = "topoctl.diff/v1"

// Kind is a sort of difference.
type Kind string

// The kinds of difference, in the order in which a report lists them.
const (
	Removed    Kind = "removed"
	Added      Kind = "added"
	Moved      Kind = "moved"      // the same device in another slot
	Renumbered Kind = "renumbered" // the same device under another name, index or bus number
	Degraded   Kind = "degraded"   // a link or port got slower, narrower or went down
	Improved   Kind = "improved"   // the reverse
	Changed    Kind = "changed"    // anything else that matters
	Policy     Kind = "policy"     // a choice of ports changes
)

var kinds = []Kind{Removed, Added, Moved, Renumbered, Degraded, Improved, Changed, Policy}

// Method is how two nodes were found to be the same.
type Method string

// The methods of matching, surest first.
const (
	ByIdentity Method = "identity" // UUID, GUID, MAC address or serial number
	BySlot     Method = "slot"     // PCI address, vendor and device
	ByPosition Method = "position" // place in the tree, or order among its like
	ByName     Method = "name"     // nothing but the name
)

// Hosts says whether both topologies are of one host.
type Hosts string

// How two hosts relate.
const (
	SameHost       Hosts = "same"
	DifferentHosts Hosts = "different"
	UnknownHosts   Hosts = "unknown" // neither identities nor names say
)

// Identities says whether UUIDs, GUIDs, MAC addresses, serial numbers, names of
// the host and addresses of its ports are compared.
type Identities string

// Whether identities are compared, and why not.
const (
	IdentitiesCompared Identities = "compared"
	IdentitiesOfOthers Identities = "different-hosts"
	IdentitiesRedacted Identities = "redacted" // a capture holds stand-ins
	IdentitiesIgnored  Identities = "ignored"  // the caller wants the structure only
)

// KindHost is the node kind of what belongs to the host as a whole.
const KindHost topo.Kind = "host"

// KindLink is the node kind of a direct link or relation of two devices.
const KindLink topo.Kind = "link"

// KindLocation is the node kind of a memory location.
const KindLocation topo.Kind = "location"

// Report is what differs between two topologies.
type Report struct {
	Schema            string       `json:"schema"`
	Old               Side         `json:"old"`
	New               Side         `json:"new"`
	Hosts             Hosts        `json:"hosts"`
	Identities        Identities   `json:"identities"`
	StructureOnly     bool         `json:"structure_only"`
	Ignored           []string     `json:"ignored"` // kinds and attributes that the caller left out
	Equal             bool         `json:"equal"`   // no differences and no policy
	FingerprintsEqual bool         `json:"fingerprints_equal"`
	Differences       []Difference `json:"differences"`
	Policy            []Choice     `json:"policy"`
	NotCompared       []Omission   `json:"not_compared"`
	Matches           []Match      `json:"matches"` // of devices, by the old one's ID
}

// Side is one of the two topologies.
type Side struct {
	Label       string     `json:"label"` // what the caller calls it
	Host        string     `json:"host,omitempty"`
	Origin      string     `json:"origin,omitempty"`
	CapturedAt  *time.Time `json:"captured_at"`
	Complete    bool       `json:"complete"`
	Fingerprint string     `json:"fingerprint"`
}

// Difference is one change of one or more nodes: those that changed alike are
// reported together.
type Difference struct {
	Kind      Kind   `json:"kind"`
	Attribute string `json:"attribute"` // "presence" for added and removed
	Nodes     []Node `json:"nodes"`
	// Old and New are for people, "" without one; OldValue and NewValue
	// are the same for programs.
	Old      string `json:"old"`
	New      string `json:"new"`
	OldValue any    `json:"old_value"`
	NewValue any    `json:"new_value"`
	Note     string `json:"note,omitempty"`
	// Effect says what follows from it, Paths which expected rates change, one
	// of each memory location, and PathsAffected how many do in all.
	Effect        string `json:"effect,omitempty"`
	Paths         []Path `json:"paths,omitempty"`
	PathsAffected int    `json:"paths_affected,omitempty"`
}

// Node is what a difference is about, on both sides.
type Node struct {
	Kind        topo.Kind `json:"kind"`
	Old         string    `json:"old,omitempty"` // its ID, "" where it is not there
	New         string    `json:"new,omitempty"`
	Name        string    `json:"name"`                      // what people call it: the new name if it has one
	OldAddress  string    `json:"old_pci_address,omitempty"` // of what came, went, moved or was renumbered
	NewAddress  string    `json:"new_pci_address,omitempty"`
	With        []string  `json:"with,omitempty"` // what came or went with it
	MatchedBy   Method    `json:"matched_by,omitempty"`
	OldEvidence string    `json:"old_evidence,omitempty"`
	NewEvidence string    `json:"new_evidence,omitempty"`
}

// Path is a memory location and a port whose expected rate changes.
type Path struct {
	OldLocation    string     `json:"old_location"`
	NewLocation    string     `json:"new_location"`
	OldPort        topo.ID    `json:"old_port"`
	NewPort        topo.ID    `json:"new_port"`
	OldBytesPerSec *topo.Rate `json:"old_bytes_per_sec"`
	NewBytesPerSec *topo.Rate `json:"new_bytes_per_sec"`
	OldBasis       topo.Basis `json:"old_basis"`
	NewBasis       topo.Basis `json:"new_basis"`
}

// Choice is a choice of ports that changes. Ports are named by their IDs, the
// old ones by the old side's.
type Choice struct {
	Kind      Kind     `json:"kind"` // "policy"
	Choice    string   `json:"choice"`
	Locations []Node   `json:"locations"` // empty where it concerns the whole host
	Old       []string `json:"old"`
	New       []string `json:"new"`
	// OldNames and NewNames are the same for people.
	OldNames []string `json:"old_names"`
	NewNames []string `json:"new_names"`
	Reason   string   `json:"reason,omitempty"` // why a port was dropped
	Effect   string   `json:"effect,omitempty"`
}

// The choices that can change.
const (
	ChoiceTransport = "transport" // RDMA or TCP
	ChoicePreferred = "preferred" // which ports are as good as the best
	ChoicePlan      = "plan"      // which ports it has when all GPUs share them
)

// Omission is what was not compared, because one side lacks it.
type Omission struct {
	Attribute string `json:"attribute"`
	Nodes     []Node `json:"nodes"`
	Side      string `json:"side"` // the one that lacks it: "old" or "new"
	Reason    string `json:"reason"`
}

// Match is one device on both sides.
type Match struct {
	Old topo.ID `json:"old"`
	New topo.ID `json:"new"`
	By  Method  `json:"by"`
	Why string  `json:"why"` // "same UUID"
	// Replaced says that another device is in the place of the old one.
	Replaced bool `json:"replaced,omitempty"`
}
