//go:build cgo && linux

package stage

import (
	"errors"
	"slices"
	"testing"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/memory/cuda"
	"github.com/topoctl/topoctl/internal/cuda/cudafake"
)

// A window lays device memory out without gaps, leaves the host's where it is, and
// copies neighbours as one.
func TestWindow(t *testing.T) {
	lib, err := cudafake.Load(cudafake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := cuda.Open(cuda.Options{Lib: lib})
	if err != nil {
		t.Fatal(err)
	}
	table := memory.NewTable(4)
	var regions []*memory.Region
	for _, g := range d.GPUs() {
		b, err := g.Alloc(1 << 16)
		if err != nil {
			t.Fatal(err)
		}
		at, _ := cuda.Pointer(b)
		cudafake.Poke(uint64(at), []byte("0123456789abcdefghijklmnopqrstuvwxyz"))
		r, err := table.Add((*memory.Block)(b), "", "", memory.None)
		if err != nil {
			t.Fatal(err)
		}
		regions = append(regions, r)
	}
	hb, err := memory.Alloc(4096, memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	host, err := table.Add(hb, "", "", memory.None)
	if err != nil {
		t.Fatal(err)
	}
	span := func(r *memory.Region, off, n int64) transport.Span {
		return transport.Span{Local: r, LocalOffset: off, RemoteOffset: off, Bytes: n}
	}
	spans := []transport.Span{
		span(regions[0], 10, 5), span(regions[0], 15, 3), span(host, 7, 9), span(regions[0], 18, 2),
		span(regions[1], 0, 4), span(regions[0], 0, 0), span(regions[0], 20, 1), span(regions[0], 30, 2),
	}
	bytes, device := Needs(spans)
	if bytes != 17 || device != regions[0].Device() {
		t.Errorf("needs %d bytes of %v", bytes, device)
	}
	pool, err := memory.PoolOf(device, memory.ForRequests)
	if err != nil {
		t.Fatal(err)
	}
	var w Bounce
	for range 3 { // it can be used again
		w.Lay(spans, pool.Get())
		var counts []int
		for _, c := range w.copies {
			counts = append(counts, len(c.pieces))
		}
		if !slices.Equal(counts, []int{1, 1, 2}) {
			t.Errorf("pieces %v, want 1, 1, 2: neighbours are one", counts)
		}
		done := make(chan error, 1)
		w.Copy(true, func(err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		var text []byte
		for i, s := range w.Spans {
			if s.Bytes != spans[i].Bytes || s.RemoteOffset != spans[i].RemoteOffset {
				t.Errorf("span %d: %+v", i, s)
			}
			if i == 2 && (s.Local != host || s.LocalOffset != 7) {
				t.Errorf("the host's span was moved: %+v", s)
			} else if i != 2 && s.Bytes > 0 {
				text = append(text, s.Local.Bytes(s.LocalOffset, s.Bytes)...)
			}
		}
		if string(text) != "abcdefghij0123kuv" {
			t.Errorf("%q", text)
		}
		cudafake.Lose(1, 214)
		w.Copy(true, func(err error) { done <- err })
		if err := <-done; !errors.Is(err, memory.ErrDevice) {
			t.Errorf("one of two devices is lost: %v", err)
		}
		cudafake.Lose(1, 0)
		w.Release()
	}
	if err := errors.Join(table.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}
