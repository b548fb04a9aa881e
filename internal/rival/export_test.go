package rival

import (
	"slices"

	"github.com/topoctl/topoctl/pathsel"
)

// Discover builds the matrix that Mooncake's own discovery would build on a
// host, with NUMA nodes in the order in which the kernel lists their
// directories. GPU keys are Mooncake's: "cuda:N", "hip:N", counted over the
// GPUs that the process sees, in PCI order.
func Discover(h *pathsel.Host, nodes []int) (*Matrix, error) {
	if len(h.Locations()) == 0 {
		return NewMatrix(nil), nil
	}
	v, err := newView(h, h.Locations()[0])
	if err != nil {
		return nil, err
	}
	return v.mooncakeHost().matrix(nodes), nil
}

// Devices lists the NICs by number.
func (m *Matrix) Devices() []string { return m.devices }

// Disable takes a NIC out of every location, as Mooncake does when the NIC
// fails. The numbers of the others stay as they are.
func (m *Matrix) Disable(name string) {
	gone := func(n string) bool { return n == name }
	for _, e := range m.entries {
		e.Preferred, e.Available = slices.DeleteFunc(e.Preferred, gone), slices.DeleteFunc(e.Available, gone)
	}
	i, ok := m.index[name]
	if !ok {
		return
	}
	goneIndex := func(n int) bool { return n == i }
	for _, r := range m.resolved {
		r.preferred, r.available = slices.DeleteFunc(r.preferred, goneIndex), slices.DeleteFunc(r.available, goneIndex)
	}
}
