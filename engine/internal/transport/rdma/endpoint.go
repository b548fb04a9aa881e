package rdma

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/verbs"
)

// Bounds of the text that stands for a port. Peers send it, and registries hold
// addresses of at most 1024 bytes.
const (
	maxText  = 1024
	maxGIDs  = 12
	maxPKeys = 16
	maxPorts = 255 // of one device
)

// fullMember is the bit of a partition key that says so; the others are limited
// members, which cannot talk to each other.
const fullMember = 0x8000

// gid is an entry of a port's table.
type gid struct {
	index int
	kind  verbs.GIDType
	addr  netip.Addr // 16 bytes; IPv4 addresses are mapped
	bits  int        // of the address's subnet, 0 not known
	iface int        // index of the netdev here, 0 none; does not travel
}

// port is a port of an RDMA device: one of ours, or what a peer says of its own.
type port struct {
	device     string
	number     int
	generation uint32 // of the device: another one after it was opened again
	link       verbs.LinkLayer
	state      verbs.PortState
	lid, smLID uint16
	mtu        int // bytes
	rate       int64
	pkeys      []uint16 // in the order of the table, which gives the index here
	gids       []gid
	maxMsg     int64 // bytes of the largest message, 0 not known
}

func (p *port) String() string { return p.device + "/" + strconv.Itoa(p.number) }

var gidNames = map[verbs.GIDType]string{verbs.GIDInfiniBand: "ib", verbs.GIDRoCEv1: "v1", verbs.GIDRoCEv2: "v2"}

var linkNames = map[verbs.LinkLayer]string{verbs.LinkInfiniBand: "ib", verbs.LinkEthernet: "eth"}

var stateNames = map[verbs.PortState]string{
	verbs.PortDown: "down", verbs.PortInit: "init", verbs.PortArmed: "armed", verbs.PortActive: "active",
}

// named finds the value that has a name.
func named[K comparable](names map[K]string, name string) (K, bool) {
	for k, n := range names {
		if n == name {
			return k, true
		}
	}
	var none K
	return none, false
}

// text is the port as peers are told, at most maxText bytes: what does not fit
// of GIDs and partition keys is left out.
func (p *port) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rdma1 %s gen=%x link=%s state=%s mtu=%d", p, p.generation, linkNames[p.link], stateNames[p.state], p.mtu)
	if p.rate > 0 {
		fmt.Fprintf(&b, " rate=%d", p.rate)
	}
	if p.maxMsg > 0 {
		fmt.Fprintf(&b, " msg=%d", p.maxMsg)
	}
	if p.lid != 0 {
		fmt.Fprintf(&b, " lid=%d sm=%d", p.lid, p.smLID)
	}
	sep, left := " pkeys=", maxPKeys
	for _, k := range p.pkeys {
		if k&^fullMember != 0 && left > 0 {
			fmt.Fprintf(&b, "%s%x", sep, k)
			sep = ","
			left--
		}
	}
	left = maxGIDs
	for i := range p.gids {
		g := p.gids[i].text()
		if left == 0 || b.Len()+len(g)+5 > maxText {
			break
		}
		b.WriteString(" gid=" + g)
		left--
	}
	return b.String()
}

func (g *gid) text() string {
	s := strconv.Itoa(g.index) + "/" + gidNames[g.kind] + "/" + g.addr.Unmap().String()
	if g.bits > 0 {
		s += "/" + strconv.Itoa(g.bits)
	}
	return s
}

// parsePort reads the text of a peer's port. Words that are not known are skipped:
// a later version may have more of them.
func parsePort(text string) (*port, error) {
	fail := func(format string, args ...any) (*port, error) {
		return nil, pkgerr.Errorf("rdma", "endpoint %.60q: %w", text, fmt.Errorf(format, args...))
	}
	if len(text) > maxText {
		return fail("%d bytes: want at most %d", len(text), maxText)
	}
	words := strings.Fields(text)
	if len(words) < 2 || words[0] != "rdma1" {
		return fail("want it to start with rdma1 and a port")
	}
	p := &port{}
	if err := p.setName(words[1]); err != nil {
		return fail("port: %w", err)
	}
	seen := map[string]bool{}
	for _, w := range words[2:] {
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			return fail("%.30q: want name=value", w)
		}
		if seen[key] && key != "gid" {
			return fail("%.30q is given twice", key)
		}
		seen[key] = true
		if err := p.set(key, value); err != nil {
			return fail("%.30q: %w", w, err)
		}
	}
	if p.link == verbs.LinkUnspecified || p.state == 0 || p.mtu == 0 {
		return fail("link, state and mtu must be there")
	}
	return p, nil
}

// setName takes "mlx5_0/1".
func (p *port) setName(s string) error {
	device, number, ok := strings.Cut(s, "/")
	n, err := strconv.ParseUint(number, 10, 8)
	switch {
	case !ok || err != nil || n == 0:
		return errors.New("want device/number")
	case !validDevice(device):
		return fmt.Errorf("%.70q is not a device name", device)
	}
	p.device, p.number = device, int(n)
	return nil
}

// validDevice says whether a device can be called that: the kernel's names have at
// most 63 bytes (IB_DEVICE_NAME_MAX), and ours are printed.
func validDevice(s string) bool {
	if s == "" || len(s) > 63 {
		return false
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' || c == '/' || c == '=' {
			return false
		}
	}
	return true
}

func (p *port) set(key, value string) error {
	var err error
	number := func(base, bits int) (n uint64) {
		n, err = strconv.ParseUint(value, base, bits)
		return n
	}
	ok := true
	switch key {
	case "gen":
		p.generation = uint32(number(16, 32))
	case "link":
		p.link, ok = named(linkNames, value)
	case "state":
		p.state, ok = named(stateNames, value)
	case "mtu":
		p.mtu = int(number(10, 16))
		ok = validMTU(p.mtu)
	case "rate":
		p.rate = int64(number(10, 63))
	case "msg":
		p.maxMsg = int64(number(10, 63))
		ok = p.maxMsg >= minMsg
	case "lid":
		p.lid = uint16(number(10, 16))
	case "sm":
		p.smLID = uint16(number(10, 16))
	case "pkeys":
		p.pkeys, err = parsePKeys(value)
	case "gid":
		return p.addGID(value)
	}
	if err == nil && !ok {
		err = errors.New("no such value")
	}
	return err
}

// minMsg is below what any port takes: a peer that says less would have us cut requests to
// nothing.
const minMsg = 4096

// validMTU says whether the ABI has a code for it.
func validMTU(bytes int) bool {
	return bytes >= 256 && bytes <= 4096 && bytes&(bytes-1) == 0
}

func parsePKeys(s string) ([]uint16, error) {
	var out []uint16
	for k := range strings.SplitSeq(s, ",") {
		v, err := strconv.ParseUint(k, 16, 16)
		if err != nil {
			return nil, err
		}
		if len(out) == maxPKeys {
			return nil, fmt.Errorf("more than %d keys", maxPKeys)
		}
		out = append(out, uint16(v))
	}
	return out, nil
}

// addGID takes "3/v2/10.0.0.1/24", the last part where the subnet is known.
func (p *port) addGID(s string) error {
	parts := strings.Split(s, "/")
	if len(p.gids) == maxGIDs {
		return fmt.Errorf("more than %d", maxGIDs)
	}
	if len(parts) != 3 && len(parts) != 4 {
		return errors.New("want index/kind/address or index/kind/address/bits")
	}
	index, err := strconv.ParseUint(parts[0], 10, 16)
	if err != nil {
		return fmt.Errorf("index: %w", err)
	}
	kind, ok := named(gidNames, parts[1])
	if !ok {
		return fmt.Errorf("kind %.8q is not known", parts[1])
	}
	addr, err := netip.ParseAddr(parts[2])
	if err != nil || addr.Zone() != "" {
		return errors.New("no address")
	}
	g := gid{index: int(index), kind: kind, addr: netip.AddrFrom16(addr.As16())}
	if len(parts) == 4 {
		bits, err := strconv.ParseUint(parts[3], 10, 8)
		if err != nil || bits == 0 || int(bits) > addr.Unmap().BitLen() {
			return errors.New("bits of the subnet: not those of an address")
		}
		g.bits = int(bits)
	}
	p.gids = append(p.gids, g)
	return nil
}
