package rival

import "slices"

// Misroute is where a peer's first picks for one location of a host end.
type Misroute struct {
	Location string
	Lands    []Landing // by NIC number
	// Wrong is the part of the picks that end on a NIC which the host does not
	// prefer for the location, or which has failed.
	Wrong float64
}

// Landing is the part of the picks that ends on one NIC.
type Landing struct {
	Device string
	Share  float64
}

// Misroutes follows what a peer does with this host's matrix. The peer numbers
// the NICs of the published matrix for itself and uses its numbers as places in
// the host's own list of NICs. The numbers differ where locations are published
// in another order than they were found (from 10 GPUs on, or where the kernel
// lists NUMA nodes backwards), and after a NIC has failed, which leaves the
// matrix but not the list.
func (m *Matrix) Misroutes() ([]Misroute, error) {
	peer, err := ParseMatrix(m.JSON())
	if err != nil {
		return nil, err
	}
	var out []Misroute
	for _, e := range peer.Entries() {
		picks := peer.resolved[e.Location].first()
		if len(picks) == 0 {
			continue
		}
		meant := e.Preferred
		if len(meant) == 0 {
			meant = e.Available
		}
		route := Misroute{Location: e.Location}
		share := 1 / float64(len(picks))
		for _, i := range slices.Sorted(slices.Values(picks)) {
			device := m.devices[i]
			route.Lands = append(route.Lands, Landing{device, share})
			if !slices.Contains(meant, device) {
				route.Wrong += share
			}
		}
		out = append(out, route)
	}
	return out, nil
}
