// Package rival says which ports other transfer engines would use for a memory
// location by their own rules, and what that costs against pathsel's choice.
//
// Each rule is written anew from what the engine's documentation and source
// say, at the version that Rule names. The rules see what the engines look at,
// not what topoctl knows: Mooncake never reads a link's speed, NCCL reads the
// speed that a link could have, UCX ranks by constants. Settings that users can
// change are at their defaults.
package rival

import (
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/pathsel"
)

// Engine names a transfer engine.
type Engine string

// The engines whose rules are known here.
const (
	Mooncake Engine = "mooncake"
	NCCL     Engine = "nccl"
	UCX      Engine = "ucx"
)

// rules are the engines in the order of Engines. A rule is in a file of its own.
var rules = []rule{
	{Mooncake, mooncakeRule, OneOf, (*view).mooncake},
	{NCCL, ncclRule, Together, (*view).nccl},
	{UCX, ucxRule, Together, (*view).ucx},
}

type rule struct {
	engine Engine
	text   string
	use    Use
	apply  func(*view, *Choice)
}

// Engines lists the engines, for flags and completion.
func Engines() []Engine {
	var out []Engine
	for _, r := range rules {
		out = append(out, r.engine)
	}
	return out
}

// Use says how an engine uses the ports that it chose.
type Use string

// How chosen ports are used.
const (
	OneOf    Use = "one_of"   // each transfer takes one of them, at random
	Together Use = "together" // a transfer is spread over all of them, in fixed parts
)

// Choice is what an engine's own rule gives for one memory location.
type Choice struct {
	Engine   Engine           `json:"engine"`
	Rule     string           `json:"rule"` // the rule in a sentence, and the version that has it
	Location pathsel.Location `json:"location"`
	Use      Use              `json:"use"`
	Chosen   []Pick           `json:"chosen"`   // in the order of names
	Rejected []Pick           `json:"rejected"` // the ports that it does not use first
	// BelievedBytesPerSec is what the engine's own figures say of its choice;
	// null where it has none.
	BelievedBytesPerSec *topo.Rate `json:"believed_bytes_per_sec"`
	// BytesPerSec is what the topology says of it: the mean over the ports where
	// a transfer takes one of them, what fits through where it is spread.
	BytesPerSec *topo.Rate       `json:"expected_bytes_per_sec"`
	Basis       topo.Basis       `json:"basis"`
	Cost        Cost             `json:"cost"`
	Notes       []pathsel.Reason `json:"notes,omitempty"`
}

// Pick is one port as an engine's rule sees it.
type Pick struct {
	Port topo.ID `json:"port"`
	NIC  topo.ID `json:"nic"`
	Name string  `json:"name"`
	// Share is the part of the transfers, or of each transfer, that goes by this port.
	Share       float64    `json:"share"`
	BytesPerSec *topo.Rate `json:"expected_bytes_per_sec"` // by the topology, alone
	Basis       topo.Basis `json:"basis"`
	// Reason is the part of the engine's rule that decided.
	Reason pathsel.Reason `json:"reason"`
	// Rank is the port's place in pathsel's order, null where pathsel rejects
	// it for the reason in Rejects.
	Rank    *int            `json:"pathsel_rank"`
	Rejects *pathsel.Reason `json:"pathsel_rejects,omitempty"`

	preferred bool // by pathsel
}

// Codes of the reasons why an engine takes a port or leaves it.
const (
	CodeNearest      pathsel.Code = "nearest"       // the smallest distance in the engine's measure
	CodeFarther      pathsel.Code = "farther"       // another port is nearer in that measure
	CodeSameNUMA     pathsel.Code = "same-numa"     // on the memory's NUMA node
	CodeOtherNUMA    pathsel.Code = "other-numa"    // on another NUMA node, or the kernel does not say
	CodeNoneNear     pathsel.Code = "none-near"     // no port is preferred, so all are alike
	CodeFiltered     pathsel.Code = "filtered"      // the engine does not take the port at all
	CodeTurn         pathsel.Code = "turn"          // equal to others, this one's turn by the GPU's index
	CodeOtherTurn    pathsel.Code = "other-turn"    // equal to the chosen ones, another GPU's turn
	CodeTooSlow      pathsel.Code = "too-slow"      // less than a quarter of the fastest, in the engine's figures
	CodeEnough       pathsel.Code = "enough"        // the engine has as many ports as it takes
	CodeNoRule       pathsel.Code = "no-rule"       // the engine's rule does not cover this location
	CodeGPUDirect    pathsel.Code = "gpudirect"     // the NIC is near enough to reach GPU memory itself
	CodeNoGPUDirect  pathsel.Code = "no-gpudirect"  // the NIC is too far for that in the engine's rule
	CodeMaximumSpeed pathsel.Code = "maximum-speed" // the engine believes a link's maximum, not its state
	CodeGuess        pathsel.Code = "guess"         // something the rule looks at is not known for certain here
	CodeTakenAsYes   pathsel.Code = "taken-as-yes"  // something that the engine demands is not known and taken as fulfilled
)

// Choose applies an engine's rule to a memory location.
func Choose(h *pathsel.Host, engine Engine, location pathsel.Location) (*Choice, error) {
	v, err := newView(h, location)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(rules, func(r rule) bool { return r.engine == engine })
	if i < 0 {
		return nil, pkgerr.Errorf("rival", "engine %q: want mooncake, nccl or ucx", engine)
	}
	c := &Choice{Engine: engine, Rule: rules[i].text, Use: rules[i].use, Location: location, Chosen: []Pick{}, Rejected: []Pick{}}
	rules[i].apply(v, c)
	if err := v.weigh(c); err != nil {
		return nil, err
	}
	return c, nil
}
