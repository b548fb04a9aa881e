package picture

import "github.com/topoctl/topoctl/discover/topo"

// Ends is what the two ends of a PCIe link say of it.
type Ends struct {
	Above topo.PCILink // the port; nothing on a root bus
	Below topo.PCILink
}

// EndsOf is what a port (nil on a root bus) and the function below it say of
// the link between them.
func EndsOf(port, d *topo.PCIDevice) Ends {
	e := Ends{Below: d.Believed()}
	if port != nil && port.Role != topo.RoleUpstream { // that one speaks of its own link, not of one below it
		e.Above = port.Believed()
	}
	return e
}

// Ability says how a link's width or speed stands to what its ends can do.
type Ability string

// At the maximum of either end a link is as good as it can be.
const (
	Full    Ability = "full"
	Less    Ability = "less"    // both ends can do more
	Maybe   Ability = "maybe"   // one end can do more, the other does not say
	Unknown Ability = "unknown" // what runs, or what is possible, is not known
)

// Fit is a link's width in lanes, or its speed in mega transfers per second,
// compared with what both ends can do. The numbers are 0 where they are not known.
type Fit struct {
	Ability    Ability
	Now, Could int
}

// Width judges the number of lanes.
func (e *Ends) Width() Fit {
	return fit(lower(e.Above.Width, e.Below.Width), e.Above.MaxWidth, e.Below.MaxWidth)
}

// Speed judges the speed of a lane. An idle GPU lowers it.
func (e *Ends) Speed() Fit {
	return fit(lower(e.Above.SpeedMTs, e.Below.SpeedMTs), e.Above.MaxSpeedMTs, e.Below.MaxSpeedMTs)
}

// Degraded says whether the link runs below what both ends can do. A GPU's
// speed does not count, because an idle GPU lowers it.
func (e *Ends) Degraded(gpu bool) bool {
	return e.Width().Ability == Less || !gpu && e.Speed().Ability == Less
}

func fit(now, x, y *int) Fit {
	could := lower(x, y)
	switch {
	case now == nil || could == nil:
		return Fit{Ability: Unknown}
	case x != nil && *now >= *x || y != nil && *now >= *y:
		return Fit{Full, *now, *now}
	case x == nil || y == nil:
		return Fit{Maybe, *now, *could}
	}
	return Fit{Less, *now, *could}
}

func lower(a, b *int) *int {
	if a == nil || b != nil && *b < *a {
		return b
	}
	return a
}

// LeadsToGPU says whether the link above a switch's upstream port is a GPU's own, which idling
// slows down: AMD builds a switch into the card of a GPU.
func LeadsToGPU(index *topo.Index, up *topo.PCIDevice) bool {
	const amd, amdGPU = "0x1022", "0x1002"
	if up.Role != topo.RoleUpstream || up.Vendor != amd && up.Vendor != amdGPU {
		return false
	}
	gpus := 0
	for _, down := range index.Children(up.ID) {
		for _, d := range index.Children(down.ID) {
			gpus += len(index.On(d.ID).GPUs)
		}
	}
	return gpus == 1
}
