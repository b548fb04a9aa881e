// Package probe measures pairs of ports over RDMA between two machines by "topoctl probe
// fabric", with one rail slower than it says. It runs inside the virtual machine
// lab only.
package probe
