package memory

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/testkit/longtest"
)

func region(t testing.TB, tab *Table, size int64, name string, grant Grant) *Region {
	t.Helper()
	b, err := Alloc(size, Options{Backing: Private})
	if err != nil {
		t.Fatal(err)
	}
	r, err := tab.Add(b, name, "", grant)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func closeTable(t testing.TB, tab *Table) {
	t.Helper()
	if err := tab.Close(); err != nil {
		t.Error(err)
	}
}

func TestPinHostile(t *testing.T) {
	tab := NewTable(4)
	defer closeTable(t, tab)
	r := region(t, tab, 1000, "kv", PeerRead)
	both := region(t, tab, 1000, "both", PeerRead|PeerWrite)
	none := region(t, tab, 1000, "none", None)
	const top = math.MaxUint64
	for _, c := range []struct {
		id             ID
		offset, length uint64
		want           Grant
		err            error
	}{
		{r.ID(), 0, 1000, PeerRead, nil},
		{r.ID(), 1000, 0, PeerRead, nil},
		{r.ID(), 999, 1, PeerRead, nil},
		{r.ID(), 0, 1000, None, nil},
		{both.ID(), 0, 1, PeerRead | PeerWrite, nil},
		{r.ID(), 0, 1001, PeerRead, ErrRange},
		{r.ID(), 1, 1000, PeerRead, ErrRange},
		{r.ID(), 1001, 0, PeerRead, ErrRange},
		{r.ID(), top, 1, PeerRead, ErrRange},
		{r.ID(), 1, top, PeerRead, ErrRange},
		{r.ID(), top, top, PeerRead, ErrRange},
		{r.ID(), top - 499, 500, PeerRead, ErrRange},
		{r.ID(), 1 << 63, 1 << 63, PeerRead, ErrRange},
		{r.ID(), 0, 1, PeerWrite, ErrDenied},
		{r.ID(), 0, 1, PeerRead | PeerWrite, ErrDenied},
		{r.ID(), 0, 1, 0xff, ErrDenied},
		{none.ID(), 0, 1, PeerRead, ErrNoRegion}, // as if it did not exist
		{none.ID(), 0, 0, None, ErrNoRegion},
		{0, 0, 1, PeerRead, ErrNoRegion},
		{r.ID() + 1<<32, 0, 1, PeerRead, ErrNoRegion},
		{5, 0, 1, PeerRead, ErrNoRegion},
		{0xffffffff, 0, 1, PeerRead, ErrNoRegion},
		{1 << 32, 0, 1, PeerRead, ErrNoRegion},
		{top, 0, 1, PeerRead, ErrNoRegion},
	} {
		got, err := tab.Pin(c.id, c.offset, c.length, c.want)
		if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) || (err == nil) != (got != nil) {
			t.Errorf("%+v: %v", c, err)
		}
		if got != nil {
			got.Unpin()
		}
	}
	for _, r := range []*Region{r, both, none} {
		if n := r.Pins(); n != 0 {
			t.Errorf("%d pins left", n)
		}
	}
}

func TestAddRefuses(t *testing.T) {
	tab := NewTable(2)
	defer closeTable(t, tab)
	b := alloc(t, 10, Options{})
	for _, c := range []struct{ name, location, says string }{
		{strings.Repeat("x", 256), "", "longer than 255"},
		{"a\nb", "", "not printable"},
		{"a\x1b[31m", "", "not printable"},
		{"\xff", "", "UTF-8"},
		{"ok", "\x00", "not printable"},
	} {
		if _, err := tab.Add(b, c.name, c.location, None); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q at %q: %v, want %q", c.name, c.location, err, c.says)
		}
	}
	if _, err := tab.Add(b, "g", "", 0x80); err == nil {
		t.Error("unknown grant: no error")
	}
	r, err := tab.Add(b, "größe 1", "cpu:0", PeerWrite)
	if err != nil {
		t.Fatal(err)
	}
	if r.Name() != "größe 1" || r.Location() != "cpu:0" || r.Grant() != PeerWrite || r.Block() != b || r.Size() != 10 {
		t.Errorf("%+v", r)
	}
	if _, err := tab.Add(b, "again", "", None); err == nil {
		t.Error("one block, two regions: no error")
	}
	if _, err := tab.Add(alloc(t, 10, Options{}), "größe 1", "", None); err == nil {
		t.Error("one name, two regions: no error")
	}
	region(t, tab, 10, "", None)
	if _, err := tab.Add(alloc(t, 10, Options{}), "", "", None); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("a third region: %v", err)
	}
}

func TestGivenNamesAreUnique(t *testing.T) {
	tab := NewTable(10)
	defer closeTable(t, tab)
	region(t, tab, 1, "region-2", None)
	seen := map[string]bool{"region-2": true}
	for range 3 {
		r := region(t, tab, 1, "", None)
		if seen[r.Name()] {
			t.Errorf("%q twice", r.Name())
		}
		seen[r.Name()] = true
	}
}

func TestClosedIDNeverComesBack(t *testing.T) {
	tab := NewTable(1)
	defer closeTable(t, tab)
	var old []ID
	for range 5 {
		r := region(t, tab, 100, "kv", PeerRead)
		for _, id := range old {
			if id == r.ID() {
				t.Errorf("ID %#x used twice", id)
			}
			if _, err := tab.Pin(id, 0, 1, PeerRead); !errors.Is(err, ErrNoRegion) {
				t.Errorf("stale ID: %v", err)
			}
		}
		if err := r.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if _, err := tab.Pin(r.ID(), 0, 1, PeerRead); !errors.Is(err, ErrNoRegion) {
			t.Errorf("closed: %v", err)
		}
		if r.Pin() {
			t.Error("pinned after close")
		}
		old = append(old, r.ID())
	}
	// When the high half is used up, the place is not used any more.
	tab.used[0] = math.MaxUint32
	r := region(t, tab, 1, "last", None)
	if err := r.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Add(alloc(t, 1, Options{}), "over", "", None); err == nil {
		t.Error("the IDs of a place began again")
	}
}

func TestRegionCloseWaitsForPins(t *testing.T) {
	tab := NewTable(4)
	r := region(t, tab, 4096, "kv", PeerWrite)
	p, err := tab.Pin(r.ID(), 0, 10, PeerWrite)
	if err != nil {
		t.Fatal(err)
	}
	expired, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.Close(expired); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "1 pins") {
		t.Errorf("close with a pin: %v", err)
	}
	if faults(func() { p.Bytes(0, 10)[0] = 1 }) {
		t.Error("hidden under a pin")
	}
	if err := tab.Close(); err == nil || !strings.Contains(err.Error(), "still pinned 1 times") {
		t.Errorf("table closed with a pin: %v", err)
	}
	if faults(func() { p.Bytes(0, 10)[0] = 1 }) {
		t.Error("unmapped under a pin")
	}
	done := make(chan error)
	go func() { done <- r.Close(context.Background()) }()
	select {
	case err := <-done:
		t.Fatalf("closed under a pin: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	at := &p.Bytes(0, 10)[0]
	p.Unpin()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !faults(func() { *at = 1 }) {
		t.Error("not hidden after close")
	}
	if err := tab.Close(); err != nil {
		t.Error(err)
	}
	if _, err := tab.Add(alloc(t, 1, Options{}), "late", "", None); err == nil {
		t.Error("added to a closed table")
	}
}

func TestUnpinTooOften(t *testing.T) {
	tab := NewTable(1)
	defer closeTable(t, tab)
	r := region(t, tab, 1, "kv", None)
	defer r.state.Store(0)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	r.Unpin()
}

// TestClosePinRace closes regions under goroutines that pin them by ID and write:
// a write that faults, or lands where it should not, fails.
func TestClosePinRace(t *testing.T) {
	tab := NewTable(8)
	var current atomic.Uint64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var pinned atomic.Int64
	for g := range 3 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				select {
				case <-stop:
					return
				default:
				}
				r, err := tab.Pin(ID(current.Load()), uint64(g)*8, 8, PeerWrite)
				if err != nil {
					continue
				}
				pinned.Add(1)
				b := r.Bytes(int64(g)*8, 8)
				if faults(func() { b[0]++; b[7]++ }) {
					t.Error("pinned memory faults")
				}
				r.Unpin()
			}
		}()
	}
	for range 60 {
		r := region(t, tab, 4096, "kv", PeerWrite)
		current.Store(uint64(r.ID()))
		for before, i := pinned.Load(), 0; pinned.Load() == before && i < 1000; i++ {
			time.Sleep(time.Microsecond)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		if err := r.Close(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	close(stop)
	wg.Wait()
	if pinned.Load() == 0 {
		t.Error("nothing was ever pinned")
	}
	closeTable(t, tab)
}

// TestTableModel compares a table with a plain model of it.
func TestTableModel(t *testing.T) {
	expired, cancel := context.WithCancel(context.Background())
	cancel()
	rapid.Check(t, func(t *rapid.T) {
		const limit = 3
		tab := NewTable(limit)
		type entry struct {
			r    *Region
			pins int
			open bool
		}
		var all []*entry
		pick := func() *entry {
			if len(all) == 0 {
				t.Skip("no region yet: this step cannot be drawn")
			}
			return all[rapid.IntRange(0, len(all)-1).Draw(t, "entry")]
		}
		open := func() (n int) {
			for _, e := range all {
				if e.open {
					n++
				}
			}
			return n
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				b, err := Alloc(100, Options{Backing: Private, Lazy: true})
				if err != nil {
					t.Fatal(err)
				}
				r, err := tab.Add(b, "", "", PeerRead)
				if (err == nil) != (open() < limit) {
					t.Fatalf("%d open: %v", open(), err)
				}
				if err != nil {
					_ = b.Free()
					return
				}
				for _, e := range all {
					if e.r.ID() == r.ID() {
						t.Fatalf("ID %#x again", r.ID())
					}
				}
				all = append(all, &entry{r: r, open: true})
			},
			"pin": func(t *rapid.T) {
				e := pick()
				offset, length := rapid.Uint64Range(0, 120).Draw(t, "offset"), rapid.Uint64Range(0, 120).Draw(t, "length")
				r, err := tab.Pin(e.r.ID(), offset, length, PeerRead)
				if ok := e.open && offset+length <= 100; (err == nil) != ok || ok && r != e.r {
					t.Fatalf("pin %d+%d, open %v: %v", offset, length, e.open, err)
				}
				if err == nil {
					e.pins++
				}
			},
			"unpin": func(*rapid.T) {
				if e := pick(); e.pins > 0 {
					e.pins--
					e.r.Unpin()
				}
			},
			"close": func(t *rapid.T) {
				e := pick()
				e.open = false
				if err := e.r.Close(expired); (err == nil) != (e.pins == 0) {
					t.Fatalf("close with %d pins: %v", e.pins, err)
				}
			},
			"": func(t *rapid.T) {
				if n := len(tab.Regions()); n != open() {
					t.Fatalf("%d regions, %d open", n, open())
				}
				for _, e := range all {
					if int(e.r.Pins()) != e.pins || e.r.Closed() == e.open {
						t.Fatalf("%d pins, want %d", e.r.Pins(), e.pins)
					}
				}
			},
		})
		for _, e := range all {
			for ; e.pins > 0; e.pins-- {
				e.r.Unpin()
			}
		}
		if err := tab.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// Closed regions give addresses and memory back: so many would need more addresses than a process has.
func TestClosedRegionsGiveAddressesBack(t *testing.T) {
	const size = 1 << 30
	rounds := 140_000 // there are addresses for 131,068
	if longtest.On() {
		rounds = 300_000
	}
	tab := NewTable(4)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := int64(0)
	for i := range rounds {
		b, err := Alloc(size, Options{Backing: Private, Lazy: true})
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		r, err := tab.Add(b, "kv", "", PeerWrite)
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		at := b.Bytes()
		if err := r.Close(context.Background()); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		if i%10_000 == 0 && !faults(func() { at[size/2] = 1 }) {
			t.Errorf("round %d: memory that was just closed can be touched", i)
		}
		if i == 2*maxHidden {
			before = heap()
		}
	}
	if more := heap() - before; more > 4<<20 {
		t.Errorf("%d regions that are closed hold %d bytes", rounds, more)
	}
	if len(tab.hidden) != maxHidden || tab.hiddenBytes != maxHidden*size || len(tab.gone) != 0 {
		t.Errorf("%d hidden (%d bytes), %d gone", len(tab.hidden), tab.hiddenBytes, len(tab.gone))
	}
	closeTable(t, tab)
	if len(tab.hidden) != 0 {
		t.Errorf("%d are left", len(tab.hidden))
	}
}
