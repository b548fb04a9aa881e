package rdma

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/internal/base/engine/memory"
)

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
		return nil, fmt.Errorf("rdma: region key %.40q: %s", s, what)
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
