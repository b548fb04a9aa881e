package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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
	groups := map[string]int{}
	for _, r := range s.roots {
		dir := "sys/devices/"
		if r.under != "" {
			dir += r.under + "/"
		}
		r.path = fmt.Sprintf("%spci%04x:%02x", dir, r.domain, r.bus)
		for _, f := range r.kids {
			f.place(r.path)
		}
	}
	for i, f := range s.pci {
		f.order = i
		f.multi = slots[f.bdf.Slot()] > 1
		key := f.bdf.Slot()
		if f.pf != nil {
			key = f.bdf.String() // functions of their own
		}
		if _, ok := groups[key]; !ok {
			groups[key] = len(groups)
			f.leads = true
		}
		f.group = groups[key]
	}
	s.planGPUs()
	s.planNICs()
	s.planNVMes()
}

// place sets the path and the link state of f and what is below it. A bridge's
// own link is decided before that of what hangs from it.
func (f *function) place(dir string) {
	f.path = dir + "/" + f.bdf.String()
	above := f.parent
	switch {
	case f.link == (lane{}) || f.kind == "port" || f.kind == "down":
	case above != nil && above.link != (lane{}) && above.kind != "switch" && above.believable():
		f.cur = lane{min(f.link.gen, above.link.gen), min(f.link.width, above.link.width)}
		f.cur = fill(above.at, f.cur)
	default:
		f.cur = f.link
	}
	if f.cur != (lane{}) {
		f.cur = fill(f.at, f.cur)
	}
	for _, kid := range f.kids {
		kid.place(f.path)
	}
	if f.kind != "port" && f.kind != "down" {
		return
	}
	// A port shows the link below it; an empty slot trains at nothing.
	f.cur = lane{1, 0}
	for _, kid := range f.kids {
		if kid.cur != (lane{}) {
			f.cur = kid.cur
			break
		}
	}
	f.cur = fill(f.at, f.cur)
}

// believable says whether a port's link is the link of what hangs from it. The
// ports of QEMU show links that are not there.
func (f *function) believable() bool { return f.vendor != 0x1b36 }

// made gives n bytes that depend only on the machine and what they are for.
func (s *Spec) made(what string, n int) []byte {
	sum := sha256.Sum256([]byte(s.seed + "\x00" + what))
	return sum[:n]
}

func (s *Spec) planGPUs() {
	for _, f := range s.gpus() {
		b := s.made("uuid "+f.bdf.String(), 16)
		if f.gpu.uuid == "" {
			f.gpu.uuid = "GPU-" + uuid(b)
		}
		if f.gpu.serial == "" {
			f.gpu.serial = fmt.Sprintf("16%02d%09d", int(b[0])%100, (int(b[1])<<24|int(b[2])<<16|int(b[3])<<8|int(b[4]))%1_000_000_000)
		}
	}
}

func uuid(b []byte) string {
	h := hex.EncodeToString(b)
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:32]}, "-")
}

func (s *Spec) planNICs() {
	index := 1 // lo
	first := map[string]*nic{}
	for _, f := range s.pci {
		n := f.nic
		if n == nil {
			continue
		}
		// The functions of a card have neighbouring addresses.
		tail := s.made("mac "+f.bdf.Slot(), 3)
		last := tail[2]&0xf0 | f.bdf.Func
		if n.mac == "" {
			n.mac = fmt.Sprintf("%s:%02x:%02x:%02x", f.part.oui, tail[0], tail[1], last)
		}
		if n.guid == "" {
			n.guid = guidOf(n.mac)
		}
		slot := f.bdf.Slot()
		switch {
		case f.pf != nil:
			n.imageGUID = f.pf.nic.imageGUID
		case first[slot] != nil:
			n.imageGUID = first[slot].guid
		default:
			first[slot], n.imageGUID = n, n.guid
		}
		if n.rate == "" {
			n.rate = rateText(n.gbps)
		}
		if n.net != "" {
			index++
			n.ifindex = index
		}
	}
	for _, d := range s.virtualNetdevs() {
		index++
		d.ifindex = index
		b := s.made("mac "+d.name, 5)
		d.mac = fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3], b[4])
		d.mbps, d.up = -1, true
	}
	for range 2 { // an interface may stand on one that stands on another
		for _, d := range s.virtualNetdevs() {
			s.follow(d)
		}
	}
}

// planNVMes names the controllers that have no name: nvme0, nvme1, ... in PCI order.
func (s *Spec) planNVMes() {
	taken := map[string]bool{}
	for _, f := range s.pci {
		taken[f.nvme] = true
	}
	next := 0
	for _, f := range s.pci {
		if f.kind != "nvme" || f.nvme != "" {
			continue
		}
		for f.nvme == "" || taken[f.nvme] {
			f.nvme = "nvme" + strconv.Itoa(next)
			next++
		}
	}
}

// follow takes a bond's or VLAN's address, speed and state from what it stands on.
func (s *Spec) follow(d *netdev) {
	legs := d.legs
	if d.on != "" {
		legs = []string{d.on}
	}
	for i, leg := range legs {
		var mac string
		mbps, up := -1, true
		if f := s.netFunction(leg); f != nil {
			mac, mbps, up = f.nic.mac, f.nic.gbps*1000, f.nic.state == "active"
		} else if v := s.virtualNetdev(leg); v != nil {
			mac, mbps, up = v.mac, v.mbps, v.up
		}
		if i == 0 {
			d.mac, d.mbps, d.up = mac, 0, false
		}
		if up {
			d.mbps, d.up = d.mbps+max(mbps, 0), true
		}
	}
}

func (s *Spec) virtualNetdevs() []*netdev {
	out := make([]*netdev, 0, len(s.bonds)+len(s.netdevs))
	return append(append(out, s.bonds...), s.netdevs...)
}

func (s *Spec) virtualNetdev(name string) *netdev {
	for _, d := range s.virtualNetdevs() {
		if d.name == name {
			return d
		}
	}
	return nil
}

// netFunction is the function whose netdev has the name.
func (s *Spec) netFunction(name string) *function {
	for _, f := range s.pci {
		if f.nic != nil && f.nic.net == name && name != "" {
			return f
		}
	}
	return nil
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
	if name == "" {
		name = "4X"
	}
	return fmt.Sprintf("%d Gb/sec (%s)", gbps, name)
}
