package rdma

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/verbs"
)

// Messages between Dial and Accept, see docs/wire.md.
const (
	version      = 1
	maxLanePairs = 16
	maxMessage   = 512
)

// Kinds of requests. All but the first are about a connection that is there.
const (
	askConnect = 1 // make the passive end
	askReplace = 2 // one queue pair of it, after a request that was refused broke it
	askArrived = 3 // the connection works
	askEnd     = 4 // it is over
	askRenew   = 5 // as askReplace, if the peer's end of it is broken
)

// qpEnd is one end of a queue pair.
type qpEnd struct {
	number uint32 // 24 bits
	psn    uint32 // of the first packet that it sends, 24 bits
}

// request is what the active end asks for.
type request struct {
	kind  uint8
	nonce uint64 // comes back in the answer, so that no other one is taken for it
	// Of askConnect:
	target     topo.ID // the port that is dialled, as its owner calls it
	generation uint32  // of its device, from the endpoint
	from       qpAddr
	toGID      [16]byte // the peer's GID that we chose
	mtu        uint16
	readsOut   uint8 // READs that each queue pair will have open at a time
	// Of askConnect, askReplace and askRenew:
	qps  []qpEnd
	slot uint8 // askReplace and askRenew: which one
}

// qpAddr is where queue pairs of one end are.
type qpAddr struct {
	link   verbs.LinkLayer
	global bool // by GID
	kind   verbs.GIDType
	gid    [16]byte
	lid    uint16
	pkey   uint16
}

// answer is what the passive end says.
type answer struct {
	nonce      uint64
	generation uint32 // of its device
	lid        uint16
	mtu        uint16
	readsIn    uint8 // READs that each of its queue pairs answers at a time
	qps        []qpEnd
}

var errShort = errors.New("it ends too early")

// reader takes fields off a message; the first that is missing is remembered.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) take(n int) []byte {
	if len(r.rest) < n {
		r.err, r.rest = errShort, nil
		return make([]byte, n)
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) u8() uint8   { return r.take(1)[0] }
func (r *reader) u16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *reader) u32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }

func (r *reader) qps() []qpEnd {
	n := int(r.u8())
	if n > maxLanePairs && r.err == nil {
		r.err = fmt.Errorf("%d queue pairs: want at most %d", n, maxLanePairs)
	}
	if r.err != nil {
		return nil
	}
	list := make([]qpEnd, n)
	for i := range list {
		list[i] = qpEnd{r.u32(), r.u32()}
		if list[i].number >= 1<<24 || list[i].psn >= 1<<24 {
			r.err = errors.New("a queue pair's number or sequence number of more than 24 bits")
		}
	}
	return list
}

func appendEnds(b []byte, list []qpEnd) []byte {
	b = append(b, uint8(len(list)))
	for _, q := range list {
		b = binary.BigEndian.AppendUint32(b, q.number)
		b = binary.BigEndian.AppendUint32(b, q.psn)
	}
	return b
}

func (q *request) encode() []byte {
	b := binary.BigEndian.AppendUint64([]byte{version, q.kind}, q.nonce)
	switch q.kind {
	case askConnect:
		b = append(append(b, uint8(len(q.target))), q.target...)
		b = binary.BigEndian.AppendUint32(b, q.generation)
		global := uint8(0)
		if q.from.global {
			global = 1
		}
		b = append(b, uint8(q.from.link), global, uint8(q.from.kind))
		b = append(b, q.from.gid[:]...)
		b = append(b, q.toGID[:]...)
		for _, v := range []uint16{q.from.lid, q.from.pkey, q.mtu} {
			b = binary.BigEndian.AppendUint16(b, v)
		}
		b = appendEnds(append(b, q.readsOut), q.qps)
	case askReplace, askRenew:
		b = appendEnds(append(b, q.slot), q.qps)
	}
	return b
}

// parseRequest reads what a peer asks for. What follows the fields that are known is
// skipped: later versions may add to them.
func parseRequest(b []byte) (*request, error) {
	fail := func(err error) (*request, error) {
		return nil, fmt.Errorf("a request of %d bytes: %w", len(b), err)
	}
	if len(b) > maxMessage {
		return fail(fmt.Errorf("want at most %d", maxMessage))
	}
	r := reader{rest: b}
	if v := r.u8(); r.err == nil && v < version {
		return fail(fmt.Errorf("version %d: want %d or later", v, version))
	}
	q := &request{kind: r.u8(), nonce: r.u64()}
	switch q.kind {
	case askConnect:
		q.readConnect(&r)
	case askReplace, askRenew:
		q.slot = r.u8()
		q.qps = r.qps()
		if r.err == nil && len(q.qps) != 1 {
			return fail(fmt.Errorf("%d queue pairs to replace one", len(q.qps)))
		}
	case askArrived, askEnd:
	default:
		if r.err == nil {
			return fail(fmt.Errorf("kind %d is not known", q.kind))
		}
	}
	if r.err != nil {
		return fail(r.err)
	}
	return q, nil
}

func (q *request) readConnect(r *reader) {
	q.target = topo.ID(r.take(int(r.u8())))
	q.generation = r.u32()
	q.from.link = verbs.LinkLayer(r.u8())
	global := r.u8()
	q.from.global = global == 1
	q.from.kind = verbs.GIDType(r.u8())
	copy(q.from.gid[:], r.take(16))
	copy(q.toGID[:], r.take(16))
	q.from.lid, q.from.pkey, q.mtu = r.u16(), r.u16(), r.u16()
	q.readsOut = r.u8()
	q.qps = r.qps()
	if r.err != nil {
		return
	}
	switch {
	case global > 1 || linkNames[q.from.link] == "" || gidNames[q.from.kind] == "":
		r.err = errors.New("an address of unknown kind")
	case !q.from.global && (q.from.link != verbs.LinkInfiniBand || q.from.lid == 0):
		r.err = errors.New("neither a GID nor a LID")
	case !validMTU(int(q.mtu)):
		r.err = fmt.Errorf("MTU %d", q.mtu)
	case q.readsOut == 0 || len(q.qps) == 0:
		r.err = errors.New("no READs or no queue pairs")
	}
}

func (a *answer) encode() []byte {
	b := binary.BigEndian.AppendUint64([]byte{version}, a.nonce)
	b = binary.BigEndian.AppendUint32(b, a.generation)
	b = binary.BigEndian.AppendUint16(b, a.lid)
	b = binary.BigEndian.AppendUint16(b, a.mtu)
	return appendEnds(append(b, a.readsIn), a.qps)
}

// parseAnswer reads the answer to a request.
func parseAnswer(b []byte, q *request) (*answer, error) {
	fail := func(err error) (*answer, error) {
		return nil, fmt.Errorf("the peer's answer of %d bytes: %w", len(b), err)
	}
	if len(b) > maxMessage {
		return fail(fmt.Errorf("want at most %d", maxMessage))
	}
	r := reader{rest: b}
	v := r.u8()
	a := &answer{nonce: r.u64(), generation: r.u32(), lid: r.u16(), mtu: r.u16(), readsIn: r.u8()}
	a.qps = r.qps()
	switch {
	case r.err != nil:
		return fail(r.err)
	case v < version:
		return fail(fmt.Errorf("version %d: want %d or later", v, version))
	case a.nonce != q.nonce:
		return fail(errors.New("it is the answer to another request"))
	case len(a.qps) != len(q.qps):
		return fail(fmt.Errorf("%d queue pairs: want %d", len(a.qps), len(q.qps)))
	case q.kind != askConnect:
		return a, nil
	case a.readsIn == 0 || !validMTU(int(a.mtu)) || a.mtu > q.mtu:
		return fail(fmt.Errorf("%d READs at a time, MTU %d: want at least 1, and a MTU up to %d", a.readsIn, a.mtu, q.mtu))
	case !q.from.global && a.lid == 0:
		return fail(errors.New("no LID"))
	}
	return a, nil
}

const (
	maxKey     = 1024 // bytes of a region's key: what registries hold
	maxDevices = 24   // that fit into one: 24 of at most 38 bytes
)

// deviceKey is what names a region to one device of its engine.
type deviceKey struct {
	generation uint32 // of the device, as its endpoints say
	rkey       uint32
	iova       uint64 // the address of the region's first byte, to that device
}

// regionKey is what peers need to name a region.
type regionKey struct {
	bytes   int64
	grant   memory.Grant
	devices []deviceKey
}

var grantNames = map[memory.Grant]string{
	memory.None: "-", memory.PeerRead: "r", memory.PeerWrite: "w", memory.PeerRead | memory.PeerWrite: "rw",
}

// text is "1 BYTES GRANT" and " GENERATION:RKEY:IOVA" in hex for each device.
func (k *regionKey) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "1 %d %s", k.bytes, grantNames[k.grant])
	for _, d := range k.devices {
		fmt.Fprintf(&b, " %x:%x:%x", d.generation, d.rkey, d.iova)
	}
	return b.String()
}

// parseKey reads a peer's key. A range of the region never leaves the address space
// after this.
func parseKey(s string) (*regionKey, error) {
	fail := func(what string) (*regionKey, error) {
		return nil, pkgerr.Errorf("rdma", "region key %.40q: %s", s, what)
	}
	words := strings.Fields(s)
	if len(s) > maxKey || len(words) < 3 || words[0] != "1" {
		return fail("want 1, bytes, a grant and devices")
	}
	size, err := strconv.ParseInt(words[1], 10, 64)
	if err != nil || size < 0 {
		return fail("no number of bytes")
	}
	k := &regionKey{bytes: size}
	var ok bool
	if k.grant, ok = named(grantNames, words[2]); !ok {
		return fail("no such grant")
	}
	if len(words)-3 > maxDevices {
		return fail("too many devices")
	}
	for _, w := range words[3:] {
		d, ok := parseDeviceKey(w)
		if !ok || d.iova+uint64(size) < d.iova || k.of(d.generation) != nil {
			return fail("a device's part is wrong, or there twice")
		}
		k.devices = append(k.devices, d)
	}
	if k.grant == memory.None && len(k.devices) > 0 {
		return fail("it grants nothing and has keys")
	}
	return k, nil
}

func parseDeviceKey(w string) (d deviceKey, ok bool) {
	parts := strings.Split(w, ":")
	if len(parts) != 3 {
		return d, false
	}
	generation, err1 := strconv.ParseUint(parts[0], 16, 32)
	rkey, err2 := strconv.ParseUint(parts[1], 16, 32)
	iova, err3 := strconv.ParseUint(parts[2], 16, 64)
	return deviceKey{uint32(generation), uint32(rkey), iova}, err1 == nil && err2 == nil && err3 == nil
}

// of is the part of a device, nil where it has none.
func (k *regionKey) of(generation uint32) *deviceKey {
	for i := range k.devices {
		if k.devices[i].generation == generation {
			return &k.devices[i]
		}
	}
	return nil
}
