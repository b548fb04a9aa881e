// Package diff says what differs between two topologies: two captures of one
// host, a capture and the host as it is now, or two hosts of a fleet. It finds
// out which device of one is which of the other, says what was added, removed,
// moved, renumbered, degraded or changed, and which choices of network ports
// change with it.
//
// Devices are matched by what they are (UUID, GUID, MAC, serial number), then by
// their slot (PCI address, vendor and device), then by their position in the
// tree, then by name. Two hosts that share no identity are compared by slot and
// position, and identities, names that the fabric gives and addresses are no
// differences then.
//
// What only one side tells is not a difference: a capture made without root
// knows less, and so do other tools' files. It is listed under not_compared
// with the reason. These are never looked at, because they move by themselves
// or say nothing about the host: times, the version of the tool, where a fact
// was read, interface and IOMMU group numbers, device file numbers, names from
// pci.ids, the current speed of a GPU's link (an idle GPU lowers it), the host's
// ends of containers' interfaces, and what is computed from other facts.
//
// The package is pure: it reads two topologies, opens nothing, knows no clock.
package diff
