package engine

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/topoctl/topoctl/engine/memory"
)

// A change is encoded once, however many peers are told; one that knows less gets its own.
func TestChangeIsEncodedOnce(t *testing.T) {
	checkLeaks(t)
	e := newEngine(t, Options{})
	descriptor := func() func() ([]byte, error) {
		o := &e.offering
		o.mu.Lock()
		from := e.view(nil).now
		o.mu.Unlock()
		must(t, errOf(e.Alloc(4096, RegionOptions{Name: fmt.Sprintf("kv-%d", from.Sequence), Grant: memory.PeerRead})))
		o.mu.Lock()
		defer o.mu.Unlock()
		v := e.view(nil)
		one, other := v.delta(from, v.now), v.delta(from, e.view(nil).now)
		a, err := one()
		b, err2 := other()
		if err != nil || err2 != nil || &a[0] != &b[0] {
			t.Errorf("%v, %v: encoded twice", err, err2)
		}
		return one
	}
	first, _ := descriptor()()
	second, _ := descriptor()()
	if string(first) == string(second) {
		t.Error("another change has the same delta")
	}
}

// Peers learn where memory is only where the program offers that.
func TestAddressIsOffered(t *testing.T) {
	checkLeaks(t)
	p := newPair(t, 4096, Options{}, Options{})
	told, err := p.server.Alloc(4096, RegionOptions{Name: "told", Grant: memory.PeerRead, OfferAddress: true})
	must(t, err)
	if told.Address() != uintptr(unsafe.Pointer(&told.Bytes()[0])) {
		t.Errorf("its own address is %#x", told.Address())
	}
	there, err := p.peer.Region(testContext(t), "told")
	must(t, err)
	if address, ok := there.Address(); !ok || address != uint64(told.Address()) {
		t.Errorf("it is told %#x, %v: want %#x", address, ok, told.Address())
	}
	if address, ok := p.to.Address(); ok || address != 0 {
		t.Errorf("it is told %#x of a region that does not offer it", address)
	}
}
