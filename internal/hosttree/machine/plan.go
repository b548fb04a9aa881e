package machine

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// plan computes what depends on the whole machine: paths, link states, interrupts,
// interfaces, RDMA devices, and identifiers that the text leaves out.
func (s *Spec) plan() {
	for _, r := range s.Roots {
		r.path = path.Join("sys/devices", r.Under, "pci"+r.Bus.String())
		for _, f := range r.Kids {
			f.place(r.path)
		}
	}
	virtio := 0
	for i, f := range s.pci {
		if f.Driver != "" {
			f.irq = 24 + i
		}
		f.carrier = f.path
		if f.Driver == "virtio-pci" {
			f.carrier += "/virtio" + strconv.Itoa(virtio)
			virtio++
		}
	}
	for _, f := range s.gpus() {
		b := s.made("uuid "+f.bdf.String(), 16)
		f.gpu.UUID = cmp.Or(f.gpu.UUID, "GPU-"+uuid(b))
		f.gpu.Serial = cmp.Or(f.gpu.Serial,
			fmt.Sprintf("16%02d%09d", int(b[0])%100, (int(b[1])<<24|int(b[2])<<16|int(b[3])<<8|int(b[4]))%1_000_000_000))
	}
	s.planNICs()
	s.planNetdevs()
	s.planRDMA()
	s.planNVMes()
}

// place sets the path and the link state of f and what is below it. A bridge's
// own link is decided before that of what hangs from it.
func (f *function) place(dir string) {
	f.path = dir + "/" + f.bdf.String()
	isPort := f.kind == "port" || f.kind == "down"
	if f.Link != (lane{}) && !isPort {
		f.cur = f.Link
		if up := f.parent; up != nil && up.Link != (lane{}) && up.kind != "switch" && up.believable() {
			f.cur = up.At.or(lane{min(f.Link.gen, up.Link.gen), min(f.Link.width, up.Link.width)})
		}
		f.cur = f.At.or(f.cur)
	}
	for _, kid := range f.Kids {
		kid.place(f.path)
	}
	if isPort { // it shows the link below it; an empty slot trains at nothing
		f.cur = lane{1, 0}
		if kid := first(f.Kids, func(kid *function) bool { return kid.cur != lane{} }); kid != nil {
			f.cur = kid.cur
		}
		f.cur = f.At.or(f.cur)
	}
}

// believable says whether a port's link is the link of what hangs from it. The
// ports of QEMU show links that are not there.
func (f *function) believable() bool { return f.ID.vendor != 0x1b36 }

// made gives n bytes that depend only on the machine and what they are for.
func (s *Spec) made(what string, n int) []byte {
	sum := sha256.Sum256([]byte(s.seed + "\x00" + what))
	return sum[:n]
}

func uuid(b []byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

func (s *Spec) planNICs() {
	firstGUID := map[string]string{} // of a card
	for _, f := range s.pci {
		n := f.nic
		if n == nil {
			continue
		}
		// The functions of a card have neighbouring addresses.
		slot := f.bdf.Slot()
		tail := s.made("mac "+slot, 3)
		n.MAC = cmp.Or(n.MAC, fmt.Sprintf("%s:%02x:%02x:%02x", f.part.OUI, tail[0], tail[1], tail[2]&0xf0|f.bdf.Func))
		n.GUID = cmp.Or(n.GUID, guidOf(n.MAC))
		n.Rate = cmp.Or(n.Rate, rateText(n.Gbps))
		if f.pf != nil {
			n.imageGUID = f.pf.nic.imageGUID
			continue
		}
		firstGUID[slot] = cmp.Or(firstGUID[slot], n.GUID)
		n.imageGUID = firstGUID[slot]
	}
}

// planNetdevs puts the interfaces of functions before the virtual ones, bonds before the
// others, and numbers them.
func (s *Spec) planNetdevs() {
	virtual := s.Netdevs
	slices.SortStableFunc(virtual, func(a, b *netdev) int { return trueFirst(a.Kind == "bond", b.Kind == "bond") })
	s.Netdevs = nil
	for _, f := range s.pci {
		if n := f.nic; n != nil && n.Net != "" {
			s.Netdevs = append(s.Netdevs, &netdev{function: f, Name: n.Net, path: f.carrier + "/net/" + n.Net,
				IPs: n.IPs, MTU: n.MTU, mac: n.MAC, mbps: n.Gbps * 1000, up: n.State == "active"})
		}
	}
	for _, d := range virtual {
		b := s.made("mac "+d.Name, 5)
		d.mac = fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3], b[4])
		d.path, d.mbps, d.up = virtualNet+d.Name, -1, true
	}
	s.Netdevs = append(s.Netdevs, virtual...)
	for i, d := range s.Netdevs {
		d.index = i + 2 // lo is 1
	}
	for range 2 { // an interface may stand on one that stands on another
		for _, d := range virtual {
			s.follow(d)
		}
	}
}

// trueFirst compares for a sort that puts what is true before what is not.
func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// follow takes a bond's or VLAN's address, speed and state from what it stands on.
func (s *Spec) follow(d *netdev) {
	legs := d.Legs
	if d.On != "" {
		legs = []string{d.On}
	}
	for i, name := range legs {
		leg := s.netdev(name)
		if i == 0 {
			d.mac, d.mbps, d.up = leg.mac, 0, false
		}
		if leg.up {
			d.mbps, d.up = d.mbps+max(leg.mbps, 0), true
		}
	}
}

// netdev is the interface of a name, nil if there is no such interface.
func (s *Spec) netdev(name string) *netdev {
	return first(s.Netdevs, func(d *netdev) bool { return d.Name == name })
}

// planNVMes names the controllers that have no name: nvme0, nvme1, ... in PCI order.
func (s *Spec) planNVMes() {
	taken, next := map[string]bool{}, 0
	for _, f := range s.pci {
		if f.nvme != nil {
			taken[f.nvme.Name] = true
		}
	}
	for _, f := range s.pci {
		for ; f.nvme != nil && f.nvme.Name == ""; next++ {
			if name := "nvme" + strconv.Itoa(next); !taken[name] {
				f.nvme.Name = name
			}
		}
	}
}

// guidOf makes a GUID from a MAC as mlx5 devices have it: a088:c203:00dd:eeff.
func guidOf(mac string) string {
	h := strings.ReplaceAll(mac, ":", "")
	return h[0:4] + ":" + h[4:6] + "03:00" + h[6:8] + ":" + h[8:12]
}

// rateText is how Linux writes a port's rate: lanes and the lane's speed.
// Source: drivers/infiniband/core/sysfs.c, rate_show.
func rateText(gbps int) string {
	name := map[int]string{
		10: "4X SDR", 20: "4X DDR", 25: "1X EDR", 40: "4X QDR", 50: "1X HDR", 56: "4X FDR",
		100: "4X EDR", 200: "4X HDR", 400: "4X NDR", 800: "4X XDR",
	}[gbps]
	return fmt.Sprintf("%d Gb/sec (%s)", gbps, cmp.Or(name, "4X"))
}
