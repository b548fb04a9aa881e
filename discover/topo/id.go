package topo

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Kind says what a node is.
type Kind string

// The kinds of node a topology holds.
const (
	KindPackage    Kind = "package"    // a CPU socket
	KindNUMA       Kind = "numa"       // a NUMA node
	KindHostBridge Kind = "hostbridge" // a PCI root bus (root complex)
	KindPCI        Kind = "pci"        // a PCI function, bridges included
	KindSwitch     Kind = "pciswitch"  // one PCIe switch: an upstream port and its downstream ports
	KindGPU        Kind = "gpu"        // a GPU or another accelerator
	KindNIC        Kind = "nic"        // a network card: functions of one slot
	KindRDMA       Kind = "rdma"       // an RDMA device (/sys/class/infiniband)
	KindPort       Kind = "port"       // a port of an RDMA device
	KindNetdev     Kind = "netdev"     // a network interface (/sys/class/net)
	KindNVMe       Kind = "nvme"       // an NVMe controller
	KindNVSwitch   Kind = "nvswitch"   // an NVSwitch
)

// ID names a node within one host and stays the same between runs, for
// example "pci:0000:18:00.0", "gpu:0", "rdma:mlx5_0", "port:mlx5_0/1".
// IDs of different hosts are never comparable.
type ID string

// PackageID is the ID of a CPU socket: "pkg:0".
func PackageID(n int) ID { return ID("pkg:" + strconv.Itoa(n)) }

// NUMAID is the ID of a NUMA node: "numa:0".
func NUMAID(n int) ID { return ID("numa:" + strconv.Itoa(n)) }

// HostBridgeID is the ID of a host bridge, named by its domain and root bus: "hb:0000:17".
func HostBridgeID(s string) ID { return ID("hb:" + s) }

// PCIID is the ID of a PCI function: "pci:0000:18:00.0".
func PCIID(b BDF) ID { return ID("pci:" + b.String()) }

// RepeatedPCIID is the ID of the n-th function, from 2, that a file has at one address:
// "pci:0000:c5:00.0#2". Some dumps of NCCL's have several switches of one address. What is named by
// the function has the same ending: "sw:0000:c5:00.0#2", "pcie:0000:c5:00.0#2".
func RepeatedPCIID(b BDF, n int) ID { return PCIID(b) + ID("#"+strconv.Itoa(n)) }

// repeat is how a function's ID ends if it is not the first at its address, "" if it is.
func (d *PCIDevice) repeat() string {
	if i := strings.IndexByte(string(d.ID), '#'); i >= 0 {
		return string(d.ID[i:])
	}
	return ""
}

// SwitchID is the ID of a PCIe switch, named by its upstream port: "sw:0000:15:00.0".
func SwitchID(upstream BDF) ID { return ID("sw:" + upstream.String()) }

// GPUID is the ID of a GPU, counted in PCI order: "gpu:0".
func GPUID(index int) ID { return ID("gpu:" + strconv.Itoa(index)) }

// NICID is the ID of a card, named by its slot (BDF.Slot) or otherwise: "nic:0000:18:00".
func NICID(slot string) ID { return ID("nic:" + slot) }

// RDMAID is the ID of an RDMA device: "rdma:mlx5_0".
func RDMAID(name string) ID { return ID("rdma:" + name) }

// PortID is the ID of a port of an RDMA device: "port:mlx5_0/1".
func PortID(rdma string, n int) ID { return ID("port:" + rdma + "/" + strconv.Itoa(n)) }

// NetdevID is the ID of a network interface: "net:eth0".
func NetdevID(name string) ID { return ID("net:" + name) }

// NVMeID is the ID of an NVMe controller: "nvme:nvme0".
func NVMeID(name string) ID { return ID("nvme:" + name) }

// NVSwitchID is the ID of an NVSwitch: "nvsw:0000:85:00.0".
func NVSwitchID(b BDF) ID { return ID("nvsw:" + b.String()) }

// Name is the part of an ID after its prefix: "mlx5_0" of "rdma:mlx5_0".
func (id ID) Name() string {
	_, name, _ := strings.Cut(string(id), ":")
	return name
}

// HexID is a PCI vendor, device or class number, printed as the kernel does
// ("0x15b3", "0x030200"). The zero value is "not known" and prints as "".
type HexID string

// ParseHexID reads "0x15b3", "15b3" or "0x15B3" and gives the lower-case form
// with 0x and at least the given number of digits.
func ParseHexID(s string, digits int) (HexID, error) {
	raw := strings.TrimPrefix(strings.TrimPrefix(s, "0x"), "0X")
	v, err := parseHex(raw, 32)
	if err != nil || raw == "" {
		return "", pkgerr.Errorf("topo", "%q is no hexadecimal number", s)
	}
	return HexID(fmt.Sprintf("0x%0*x", digits, v)), nil
}

// Uint is the number, 0 where it is not known.
func (h HexID) Uint() uint32 {
	v, err := strconv.ParseUint(strings.TrimPrefix(string(h), "0x"), 16, 32)
	if err != nil {
		return 0
	}
	return uint32(v)
}

// NaturalCompare orders names as people do: "mlx5_2" before "mlx5_10".
// It is a total order: names that differ only in leading zeros are ordered as text.
func NaturalCompare(a, b string) int {
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		if isDigit(a[i]) && isDigit(b[j]) {
			na, ni := digitRun(a, i)
			nb, nj := digitRun(b, j)
			if len(na) != len(nb) {
				return len(na) - len(nb)
			}
			if c := strings.Compare(na, nb); c != 0 {
				return c
			}
			i, j = ni, nj
			continue
		}
		if a[i] != b[j] {
			return int(a[i]) - int(b[j])
		}
		i, j = i+1, j+1
	}
	if c := (len(a) - i) - (len(b) - j); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// digitRun gives the digits at i without leading zeros, and where they end.
func digitRun(s string, i int) (string, int) {
	end := i
	for end < len(s) && isDigit(s[end]) {
		end++
	}
	return strings.TrimLeft(s[i:end], "0"), end
}
