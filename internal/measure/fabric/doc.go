// Package fabric measures pairs of ports of many hosts. An agent on each host answers a
// controller's calls (Server); the controller opens all of them (Open) and measures round
// by round (Fleet.Prober): memory is prepared at the targets, the initiators connect, all
// begin together, and what each claims is checked before it is believed.
//
// Whoever has the token can have an agent move bytes, as it can by the engine itself. Both
// ends take nothing on trust beyond that: whatever comes is bounded and checked. Only
// durations travel, by clocks that nobody steps.
package fabric
