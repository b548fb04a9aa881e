package memory

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"unsafe"
)

// random fills b with bytes that hang on a seed.
func random(b []byte, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

func alloc(t testing.TB, size int64, o Options) *Block {
	t.Helper()
	b, err := Alloc(size, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Free(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// faults says whether touching a byte faults.
func faults(f func()) (yes bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(runtime.Error); !ok {
				panic(r)
			}
			yes = true
		}
	}()
	f()
	return false
}

func TestAlloc(t *testing.T) {
	for _, o := range []Options{
		{}, {Backing: Private}, {Lazy: true}, {Backing: Private, Lazy: true},
		{Pages: Huge}, {Backing: Private, Pages: Huge}, {Backing: Private, Pages: Huge, Lazy: true},
	} {
		for _, size := range []int64{1, 4095, 4096, 4097, 3<<20 + 5} {
			b := alloc(t, size, o)
			if b.Size() != size || int64(len(b.Bytes())) != size {
				t.Fatalf("%+v: %d bytes: got %d", o, size, b.Size())
			}
			if !bytes.Equal(b.Bytes(), make([]byte, size)) {
				t.Errorf("%+v: %d bytes: not zeroed", o, size)
			}
			random(b.Bytes(), uint64(size))
			want := make([]byte, size)
			random(want, uint64(size))
			if !bytes.Equal(b.Bytes(), want) {
				t.Errorf("%+v: %d bytes: what was written is not what is read", o, size)
			}
		}
	}
}

func TestAllocRefuses(t *testing.T) {
	for _, c := range []struct {
		size int64
		o    Options
		says string
	}{
		{0, Options{}, "above 0"},
		{-1, Options{}, "above 0"},
		{math.MaxInt64, Options{}, "address space"},
		{4096, Options{Backing: 7}, "unknown"},
		{4096, Options{Pages: 9}, "unknown"},
		{4096, Options{Nodes: []int{-1}}, "does not exist"},
		{4096, Options{Nodes: []int{5000}}, "does not exist"},
		{1 << 46, Options{Backing: Private, Lazy: true, Pages: 0, Nodes: nil, Lock: true}, "4 bytes"},
	} {
		b, err := Alloc(c.size, c.o)
		if err == nil {
			_ = b.Free()
			if c.says == "4 bytes" {
				continue // a system with that much
			}
			t.Errorf("%d bytes, %+v: no error", c.size, c.o)
		} else if c.says != "4 bytes" && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%d bytes, %+v: %v: want %q", c.size, c.o, err, c.says)
		}
	}
}

func TestHideFaultsAndKeepsAddresses(t *testing.T) {
	for _, backing := range []Backing{Shared, Private} {
		b := alloc(t, 1<<20, Options{Backing: backing})
		at := &b.Bytes()[12345]
		*at = 7
		if err := b.Hide(); err != nil {
			t.Fatal(err)
		}
		if !faults(func() { *at = 1 }) || !faults(func() { _ = bytes.IndexByte(b.Bytes(), 3) }) {
			t.Errorf("backing %d: hidden memory can be touched", backing)
		}
		// Nobody else is given the addresses.
		for range 20 {
			other := alloc(t, 1<<20, Options{Backing: Private, Lazy: true})
			start, hidden := uintptr(unsafe.Pointer(&other.bytes[0])), b.area
			if start < hidden.start+hidden.size && hidden.start < start+(1<<20) {
				t.Fatal("hidden addresses were given away")
			}
		}
		if err := b.Hide(); err != nil {
			t.Errorf("hidden twice: %v", err)
		}
		if _, ok, err := b.File(false); ok || err != nil {
			t.Errorf("a hidden block has a file: %v, %v", ok, err)
		}
		if err := b.Free(); err != nil {
			t.Error(err)
		}
	}
}

func TestForeign(t *testing.T) {
	b := alloc(t, 64<<10, Options{Backing: Private})
	address := uintptr(unsafe.Pointer(&b.Bytes()[0]))
	f, err := Foreign(address+100, 5000)
	if err != nil {
		t.Fatal(err)
	}
	random(f.Bytes(), 3)
	if !bytes.Equal(f.Bytes(), b.Bytes()[100:5100]) {
		t.Error("not the same bytes")
	}
	if err := errors.Join(f.Hide(), f.Free()); err != nil || faults(func() { b.Bytes()[200] = 1 }) {
		t.Errorf("borrowed memory was hidden or unmapped (%v)", err)
	}
	for _, c := range []struct {
		address uintptr
		size    int64
	}{{0, 10}, {address, 0}, {address, -1}, {math.MaxUint - 10, 100}, {address, math.MaxInt64}} {
		if _, err := Foreign(c.address, c.size); err == nil {
			t.Errorf("%d bytes at %#x: no error", c.size, c.address)
		}
	}
}

func TestCopy(t *testing.T) {
	const room = 3 << 20
	src, dst := alloc(t, room, Options{}).Bytes(), alloc(t, room, Options{}).Bytes()
	zero := make([]byte, room)
	random(src, 1)
	check := func(to, from, n int) {
		t.Helper()
		for name, f := range map[string]func(dst, src []byte) int{"Copy": Copy, "Stream": Stream} {
			clear(dst)
			if got := f(dst[to:to+n], src[from:from+n]); got != n {
				t.Fatalf("%s of %d bytes: copied %d", name, n, got)
			}
			if !bytes.Equal(dst[to:to+n], src[from:from+n]) {
				t.Fatalf("%s of %d bytes from %d to %d: not the same", name, n, from, to)
			}
			if !bytes.Equal(dst[:to], zero[:to]) || !bytes.Equal(dst[to+n:], zero[to+n:]) {
				t.Fatalf("%s of %d bytes to %d: wrote beside them", name, n, to)
			}
		}
	}
	r := rand.New(rand.NewPCG(7, 7))
	for _, n := range []int{0, 1, 255, minStream - 1, minStream, minStream + 1, streamBytes - 1, streamBytes, streamBytes + 1, streamBytes*3 + 77} {
		check(0, 0, n)
		check(1, 0, n)
		check(0, 1, n)
		check(31, 33, n)
	}
	for range 20 {
		check(r.IntN(200), r.IntN(200), minStream+r.IntN(2*streamBytes))
	}
	if n := Copy(dst[:10], src); n != 10 {
		t.Errorf("copied %d of 10", n)
	}
	if n := Stream(dst, src[:streamBytes]); n != streamBytes {
		t.Errorf("copied %d of %d", n, streamBytes)
	}
}

// TestCopyFault touches memory that is not there, as a hostile peer's can be.
func TestCopyFault(t *testing.T) {
	b, other := alloc(t, 1<<20, Options{}), alloc(t, 1<<20, Options{})
	if err := b.Hide(); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{100, minStream, 1 << 20} {
		if !faults(func() { Stream(b.Bytes()[:n], other.Bytes()) }) || !faults(func() { Stream(other.Bytes(), b.Bytes()[:n]) }) {
			t.Errorf("%d bytes: no fault", n)
		}
	}
	runtime.GC() // finds the stack as it should be
}

func TestCopyOverlapping(t *testing.T) {
	b := alloc(t, 2<<20, Options{}).Bytes()
	want := make([]byte, len(b))
	for _, shift := range []int{1, 64, 100000} {
		for _, up := range []bool{true, false} {
			random(b, 9)
			copy(want, b)
			if up {
				copy(want[shift:], want)
				Copy(b[shift:], b)
			} else {
				copy(want, want[shift:])
				Copy(b, b[shift:])
			}
			if !bytes.Equal(b, want) {
				t.Errorf("shift %d, up %v: not what copy does", shift, up)
			}
		}
	}
}
