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

// plan computes what depends on the whole machine: paths, link states, IOMMU
// groups, interface numbers, and identifiers that the text leaves out.
func (s *Spec) plan() {
	slots := map[string]int{}
	for _, f := range s.pci {
		slots[f.bdf.Slot()]++
	}
	for _, r := range s.roots {
		r.path = path.Join("sys/devices", r.under, fmt.Sprintf("pci%04x:%02x", r.domain, r.bus))
		for _, f := range r.kids {
			f.place(r.path)
		}
	}
	groups := map[string]int{}
	virtio := 0
	for i, f := range s.pci {
		f.order = i
		f.multi = slots[f.bdf.Slot()] > 1
		key := f.bdf.Slot()
		if f.pf != nil {
			key = f.bdf.String() // functions of their own
		}
		if _, ok := groups[key]; !ok {
			groups[key] = len(groups)
			f.firstInGroup = true
		}
		f.group = groups[key]
		f.carrier = f.path
		if f.driver == "virtio-pci" {
			f.carrier += "/virtio" + strconv.Itoa(virtio)
			virtio++
		}
	}
	s.planGPUs()
	s.planNICs()
	s.planNetdevs()
	s.planNVMes()
}

// place sets the path and the link state of f and what is below it. A bridge's
// own link is decided before that of what hangs from it.
func (f *function) place(dir string) {
	f.path = dir + "/" + f.bdf.String()
	isPort := f.kind == "port" || f.kind == "down"
	if f.link != (lane{}) && !isPort {
		f.cur = f.link
		if up := f.parent; up != nil && up.link != (lane{}) && up.kind != "switch" && up.believable() {
			f.cur = up.at.or(lane{min(f.link.gen, up.link.gen), min(f.link.width, up.link.width)})
		}
		f.cur = f.at.or(f.cur)
	}
	for _, kid := range f.kids {
		kid.place(f.path)
	}
	if isPort { // it shows the link below it; an empty slot trains at nothing
		f.cur = lane{1, 0}
		if i := slices.IndexFunc(f.kids, func(kid *function) bool { return kid.cur != lane{} }); i >= 0 {
			f.cur = f.kids[i].cur
		}
		f.cur = f.at.or(f.cur)
	}
}

// believable says whether a port's link is the link of what hangs from it. The
// ports of QEMU show links that are not there.
func (f *function) believable() bool { return f.id.vendor != 0x1b36 }

// made gives n bytes that depend only on the machine and what they are for.
func (s *Spec) made(what string, n int) []byte {
	sum := sha256.Sum256([]byte(s.seed + "\x00" + what))
	return sum[:n]
}

func (s *Spec) planGPUs() {
	for _, f := range s.gpus() {
		b := s.made("uuid "+f.bdf.String(), 16)
		f.gpu.uuid = cmp.Or(f.gpu.uuid, "GPU-"+uuid(b))
		f.gpu.serial = cmp.Or(f.gpu.serial,
			fmt.Sprintf("16%02d%09d", int(b[0])%100, (int(b[1])<<24|int(b[2])<<16|int(b[3])<<8|int(b[4]))%1_000_000_000))
	}
}

func uuid(b []byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

func (s *Spec) planNICs() {
	first := map[string]*nic{}
	for _, f := range s.pci {
		n := f.nic
		if n == nil {
			continue
		}
		// The functions of a card have neighbouring addresses.
		slot := f.bdf.Slot()
		tail := s.made("mac "+slot, 3)
		n.mac = cmp.Or(n.mac, fmt.Sprintf("%s:%02x:%02x:%02x", f.part.oui, tail[0], tail[1], tail[2]&0xf0|f.bdf.Func))
		n.guid = cmp.Or(n.guid, guidOf(n.mac))
		n.rate = cmp.Or(n.rate, rateText(n.gbps))
		switch {
		case f.pf != nil:
			n.imageGUID = f.pf.nic.imageGUID
		case first[slot] != nil:
			n.imageGUID = first[slot].guid
		default:
			first[slot], n.imageGUID = n, n.guid
		}
	}
}

// planNetdevs puts the interfaces of functions before the virtual ones, bonds before the
// others, and numbers them.
func (s *Spec) planNetdevs() {
	virtual := s.netdevs
	slices.SortStableFunc(virtual, func(a, b *netdev) int {
		rank := func(d *netdev) int { return map[bool]int{true: 0, false: 1}[d.kind == "bond"] }
		return rank(a) - rank(b)
	})
	s.netdevs = nil
	for _, f := range s.pci {
		if n := f.nic; n != nil && n.net != "" {
			s.netdevs = append(s.netdevs, &netdev{function: f, name: n.net, path: f.carrier + "/net/" + n.net,
				ips: n.ips, mtu: n.mtu, mac: n.mac, mbps: n.gbps * 1000, up: n.state == "active"})
		}
	}
	for _, d := range virtual {
		b := s.made("mac "+d.name, 5)
		d.mac = fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3], b[4])
		d.path, d.mbps, d.up = virtualNet+d.name, -1, true
	}
	s.netdevs = append(s.netdevs, virtual...)
	for i, d := range s.netdevs {
		d.index = i + 2 // lo is 1
	}
	for range 2 { // an interface may stand on one that stands on another
		for _, d := range virtual {
			s.follow(d)
		}
	}
}

// follow takes a bond's or VLAN's address, speed and state from what it stands on.
func (s *Spec) follow(d *netdev) {
	legs := d.legs
	if d.on != "" {
		legs = []string{d.on}
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

// netdev is the interface of a name, nil where there is none.
func (s *Spec) netdev(name string) *netdev {
	i := slices.IndexFunc(s.netdevs, func(d *netdev) bool { return d.name == name })
	if i < 0 {
		return nil
	}
	return s.netdevs[i]
}

// planNVMes names the controllers that have no name: nvme0, nvme1, ... in PCI order.
func (s *Spec) planNVMes() {
	taken := map[string]bool{}
	for _, f := range s.pci {
		taken[f.nvme] = true
	}
	next := 0
	for _, f := range s.pci {
		for ; f.kind == "nvme" && f.nvme == ""; next++ {
			if name := "nvme" + strconv.Itoa(next); !taken[name] {
				f.nvme = name
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
