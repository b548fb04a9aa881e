package remap

// This file reads from the description of a libvirt domain (virsh dumpxml) which PCI
// devices of the host it passes to its guest, and where the guest has them.

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// maxDepth bounds the controllers between a device and its root bus.
const maxDepth = 32

// Slot is a device's place on its bus.
type Slot struct{ Device, Func uint8 }

// Place is where a guest has a device. It goes by the slots of the bridges above the device, since the guest chooses
// the numbers of the buses.
type Place struct {
	RootBus uint8  // 0, or the number that the description gives an expander
	Path    []Slot // of the bridges from the root bus down, then of the device
}

func (p Place) String() string {
	var parts []string
	for _, s := range p.Path {
		parts = append(parts, fmt.Sprintf("%02x.%d", s.Device, s.Func))
	}
	return fmt.Sprintf("bus %02x, slot %s", p.RootBus, strings.Join(parts, " > "))
}

// Passed is a device of the host that the guest gets.
type Passed struct {
	Host  topo.BDF
	Guest Place
	Line  int // in the file
}

// Parse reads the domain of a description.
func Parse(data []byte) ([]Passed, error) {
	roots, err := document.ParseXML(data)
	if err != nil {
		return nil, pkgerr.Errorf("libvirtxml", "%w", err)
	}
	var domain *document.Element
	for _, e := range roots {
		switch {
		case e.Name == "domain":
			domain = e
		case e.Name == "domstatus" || e.Name == "domainsnapshot": // what libvirt keeps in its own folders
			if all := e.All("domain"); len(all) == 1 {
				domain = all[0]
			}
		}
	}
	if domain == nil {
		return nil, pkgerr.New("libvirtxml", "no <domain> in it: use what virsh dumpxml prints")
	}
	p := parser{controllers: map[uint64]*document.Element{}}
	var devices []*document.Element
	for _, d := range domain.All("devices") {
		for _, c := range d.All("controller") {
			if c.Get("type") != "pci" {
				continue
			}
			index, err := number(c.Get("index"), 16)
			if err != nil {
				return nil, pkgerr.Errorf("libvirtxml", "line %d: a PCI controller's index: %w", c.Line, err)
			}
			if p.controllers[index] != nil {
				return nil, pkgerr.Errorf("libvirtxml", "line %d: a second PCI controller %d", c.Line, index)
			}
			p.controllers[index] = c
		}
		devices = append(devices, d.Children...)
	}
	var out []Passed
	for _, e := range devices {
		if !passes(e) {
			continue
		}
		one, err := p.passed(e)
		if err != nil {
			return nil, pkgerr.Errorf("libvirtxml", "line %d: <%s>: %w", e.Line, e.Name, err)
		}
		out = append(out, one)
	}
	return out, nil
}

// passes says whether an element is a PCI device of the host: a hostdev, or an interface that is
// one. Source: libvirt's domain XML format, "Host device assignment".
func passes(e *document.Element) bool {
	switch e.Name {
	case "hostdev":
		return e.Get("type") == "pci"
	case "interface":
		if e.Get("type") != "hostdev" {
			return false
		}
		a := address(first(e, "source"))
		return a != nil && (a.Get("type") == "pci" || a.Get("type") == "")
	}
	return false
}

type parser struct {
	controllers map[uint64]*document.Element // by index, which addresses call a bus
}

func (p *parser) passed(e *document.Element) (Passed, error) {
	out := Passed{Line: e.Line}
	from := address(first(e, "source"))
	if from == nil {
		return out, fmt.Errorf("no <source> with an <address>")
	}
	at, err := fields(from)
	if err != nil {
		return out, fmt.Errorf("source: %w", err)
	}
	if at.bus > 0xff {
		return out, fmt.Errorf("source: bus %#x: want 0xff at most", at.bus)
	}
	out.Host = topo.BDF{Domain: uint32(at.domain), Bus: uint8(at.bus), Device: at.slot.Device, Func: at.slot.Func}
	to := address(e)
	if to == nil {
		return out, fmt.Errorf("no <address> in the guest: it has none before the domain has started once")
	}
	out.Guest, err = p.place(to)
	return out, err
}

// place follows the controllers up to a root bus.
func (p *parser) place(a *document.Element) (Place, error) {
	var place Place
	for range maxDepth {
		at, err := fields(a)
		if err != nil {
			return place, err
		}
		place.Path = append([]Slot{at.slot}, place.Path...)
		c := p.controllers[at.bus]
		switch {
		case at.domain != 0:
			return place, fmt.Errorf("domain %#x: guests have one PCI domain", at.domain)
		case c == nil && at.bus == 0, c != nil && (c.Get("model") == "pcie-root" || c.Get("model") == "pci-root"):
			return place, nil
		case c == nil:
			return place, fmt.Errorf("bus %#x: the description has no PCI controller of this index", at.bus)
		case c.Get("model") == "pcie-expander-bus" || c.Get("model") == "pci-expander-bus":
			number, err := number(first(c, "target").Get("busNr"), 8)
			if err != nil {
				return place, fmt.Errorf("the expander with index %d has no busNr", at.bus)
			}
			place.RootBus = uint8(number)
			return place, nil
		}
		if a = address(c); a == nil {
			return place, fmt.Errorf("the PCI controller %d has no <address>", at.bus)
		}
	}
	return place, fmt.Errorf("more than %d controllers above each other", maxDepth)
}

// located is an address of libvirt's.
type located struct {
	domain, bus uint64
	slot        Slot
}

func fields(a *document.Element) (located, error) {
	var out located
	var device, function uint64
	for _, f := range []struct {
		name string
		bits int
		into *uint64
	}{{"domain", 32, &out.domain}, {"bus", 16, &out.bus}, {"slot", 5, &device}, {"function", 3, &function}} {
		v := a.Get(f.name)
		if v == "" && (f.name == "domain" || f.name == "function") {
			continue // 0
		}
		n, err := number(v, f.bits)
		if err != nil {
			return out, fmt.Errorf("%s: %w", f.name, err)
		}
		*f.into = n
	}
	out.slot = Slot{uint8(device), uint8(function)}
	return out, nil
}

// number reads a decimal or hexadecimal number of some bits.
func number(s string, bits int) (uint64, error) {
	digits, base := s, 10
	if rest, ok := strings.CutPrefix(strings.ToLower(s), "0x"); ok {
		digits, base = rest, 16
	}
	n, err := strconv.ParseUint(digits, base, 64)
	if err != nil || bits < 64 && n >= 1<<bits {
		return 0, fmt.Errorf("%.20q: want a number below %#x", s, uint64(1)<<bits)
	}
	return n, nil
}

// address is an element's address, nil where it has none.
func address(e *document.Element) *document.Element {
	if a := first(e, "address"); a.Name != "" {
		return a
	}
	return nil
}

// first is the first child of a name, an empty element without one.
func first(e *document.Element, name string) *document.Element {
	if e != nil {
		if all := e.All(name); len(all) > 0 {
			return all[0]
		}
	}
	return &document.Element{}
}
