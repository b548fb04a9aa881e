package ui

import (
	"math"
	"strconv"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/units"
)

// Unknown is what stands where a value is not known.
const Unknown = "?"

// Class prints how near two devices are, "?" where that is not known.
func Class(c topo.Class) string {
	if !c.Known() {
		return Unknown
	}
	return c.String()
}

// Rate prints bytes per second of links and memory ("63.0 GB/s"), "?" for nil.
func (l *Look) Rate(r *topo.Rate) string { return rate(r, l.Units) }

// PortRate prints bytes per second of network ports ("400 Gb/s"), "?" for nil.
func (l *Look) PortRate(r *topo.Rate) string { return rate(r, l.Units.Or(units.Gbit)) }

// RateOf prints bytes per second of links and memory, "?" for NaN.
func (l *Look) RateOf(bytesPerSec float64) string { return rateOf(bytesPerSec, l.Units) }

// Expected prints a rate with how it is known ("~22.0 GB/s"), "?" for nil.
func (l *Look) Expected(r *topo.Rate, basis topo.Basis) string { return basis.Mark(l.Rate(r)) }

// Percent prints a part of a whole: "37%"; "?" for NaN. What is not quite the whole is
// never 100%, and what is something never 0%.
func (l *Look) Percent(part float64) string {
	switch {
	case math.IsNaN(part) || math.IsInf(part, 0):
		return Unknown
	case part > 0 && part < 0.005:
		return "<1%"
	case part >= 0.995 && part < 1:
		return ">99%"
	}
	return strconv.FormatFloat(part*100, 'f', 0, 64) + "%"
}

// Next is the system of units after this one, for the key that changes it.
func Next(s units.System) units.System {
	switch s {
	case units.Gbit:
		return units.Gbyte
	case units.Gbyte:
		return units.Gibyte
	case units.Gibyte:
		return units.Auto
	}
	return units.Gbit
}

func rate(r *topo.Rate, s units.System) string {
	if r == nil {
		return Unknown
	}
	return rateOf(float64(*r), s)
}

// little is the part of a unit below which digits say nothing about a port or a link.
const little = 0.001

// rateOf leaves the digits of a trickle out: "<0.001 Gb/s", not "8e-06 Gb/s".
func rateOf(v float64, s units.System) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return Unknown
	}
	unit := 1e9
	switch s.Or(units.Gbyte) {
	case units.Gbit:
		unit /= 8
	case units.Gibyte:
		unit = 1 << 30
	}
	if v > 0 && v < little*unit {
		return "<0.001 " + s.Suffix()
	}
	return units.Rate(int64(max(min(v, math.MaxInt64/2), -math.MaxInt64/2)), s)
}
