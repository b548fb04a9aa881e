//go:build linux

package shm

import (
	"testing"

	"github.com/topoctl/topoctl/internal/base/engine/memory"
)

// A region that is closed after another one has taken its place in the table
// does not close that one on the board.
func TestBoardOfLaterRegion(t *testing.T) {
	h := newHost(t, 1)
	old := h.region(4096, memory.PeerRead, memory.Options{})
	later := old.ID() + 1<<32
	if err := h.board.set(later, true); err != nil {
		t.Fatal(err)
	}
	if err := h.board.set(old.ID(), false); err != nil {
		t.Fatal(err)
	}
	if !h.board.open(later) {
		t.Error("the later region is closed on the board")
	}
}

// Regions outlive the transport in an engine's table: closing them then is
// no matter, registering is an error.
func TestDeregisterAfterClose(t *testing.T) {
	h := newHost(t, 1)
	r := h.region(4096, memory.PeerRead, memory.Options{})
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.Deregister(r); err != nil {
		t.Error(err)
	}
	if _, err := h.Register(r); err == nil {
		t.Error("a region was registered after Close")
	}
}
