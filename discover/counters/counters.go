// Package counters has what changes on a running host: bytes and errors of ports, states of
// links, load of GPUs. It holds samples and computes rates between two of them;
// discover.Sampler reads them.
package counters

import "github.com/topoctl/topoctl/discover/topo"

// Sample is one reading of a host. A device that could not be read is missing; a value that is
// not known is nil.
type Sample struct {
	AtNS  int64  `json:"at_ns"` // since some moment, by a monotonic clock
	Ports []Port `json:"ports"` // by ID
	Links []Link `json:"pcie_links"`
	GPUs  []GPU  `json:"gpus"`
	// Notes say what could not be read, and why.
	Notes []string `json:"notes,omitempty"`
}

// Port is a port of an RDMA device (ID of a topo.Port) or a network interface (of a
// topo.Netdev). Counters start at some moment: only differences mean something.
type Port struct {
	ID topo.ID `json:"id"`
	// State is as in topo: "ACTIVE" or "DOWN" of RDMA ports, operstate of interfaces.
	State           string     `json:"state,omitempty"`
	BytesPerSec     *topo.Rate `json:"bytes_per_sec"` // the line rate, nil not known
	SentBytes       *uint64    `json:"sent_bytes"`
	ReceivedBytes   *uint64    `json:"received_bytes"`
	SentPackets     *uint64    `json:"sent_packets"`
	ReceivedPackets *uint64    `json:"received_packets"`
	// Errors are the counters whose every increment means trouble, by their file names:
	// "symbol_error", "rx_crc_errors", "packet_seq_err". See Trouble and Serious.
	Errors map[string]uint64 `json:"errors,omitempty"`
}

// Link is the PCIe link of a GPU, a NIC or a bridge above one.
type Link struct {
	ID       topo.ID `json:"id"` // of a topo.PCIDevice
	SpeedMTs *int    `json:"speed_mts"`
	Width    *int    `json:"width"`
}

// GPULoad is the load of a GPU as its vendor's library reports it, by PCI address and UUID.
// Callers that have the topology set the GPU's ID.
type GPULoad struct {
	BDF  *topo.BDF // nil not known
	UUID string    // "" not known
	GPU
}

// GPU is what the vendor's library reports of a GPU; nil is not reported.
type GPU struct {
	ID                      topo.ID    `json:"id"`
	UtilizationPercent      *int       `json:"utilization_percent"`
	MemoryUsedBytes         *int64     `json:"memory_used_bytes"`
	PCIeSentBytesPerSec     *topo.Rate `json:"pcie_sent_bytes_per_sec"` // by the GPU
	PCIeReceivedBytesPerSec *topo.Rate `json:"pcie_received_bytes_per_sec"`
	// NVLink counters of all links together, since some moment.
	NVLinkSentBytes     *uint64 `json:"nvlink_sent_bytes"`
	NVLinkReceivedBytes *uint64 `json:"nvlink_received_bytes"`
}
