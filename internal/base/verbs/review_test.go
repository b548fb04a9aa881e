//go:build cgo && linux && (amd64 || arm64)

package verbs_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/topoctl/topoctl/internal/base/verbs"
	"github.com/topoctl/topoctl/internal/base/verbs/verbsfake"
)

// Of a removed device everything can be ended, once the device has said that it is over and
// not before: until then queue pairs may still move bytes.
func TestReviewRemovedDevice(t *testing.T) {
	f, a, b := pair(t, verbsfake.Options{})
	f.Remove("b", false)
	for what, err := range map[string]error{"qp": b.qp.Destroy(), "mr": b.mr.Close()} {
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v while its device is being removed", what, err)
		}
	}
	fill(a.mem, 7)
	a.post(t, a.wr(verbs.OpRDMAWrite, b, 1, 0, 64))
	a.expect(t, verbs.WCSuccess) // that it did not end is true
	f.Remove("b", true)
	if err := b.qp.Destroy(); !errors.Is(err, syscall.EIO) {
		t.Errorf("qp: %v before the event was taken", err)
	}
	for {
		e, err := b.dev.NextEvent()
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == verbs.EventDeviceFatal {
			break
		}
	}
	ok(t, b.qp.Destroy())
	ok(t, b.mr.Close())
	ok(t, b.cq.Close())
	ok(t, b.pd.Close())
	ok(t, b.dev.Close())
	if left := f.Objects("b"); left != (verbsfake.Objects{}) {
		t.Errorf("objects are left: %+v", left)
	}
}

// A device that fails and is removed later has not ended anything when it failed, nor when
// it begins to be removed.
func TestReviewRemovedAfterFailure(t *testing.T) {
	f, a, b := pair(t, verbsfake.Options{})
	fatal := func() {
		t.Helper()
		for {
			e, err := b.dev.NextEvent()
			if err != nil {
				t.Fatal(err)
			}
			if e.Type == verbs.EventDeviceFatal {
				return
			}
		}
	}
	f.Fatal("b")
	fatal()
	f.Remove("b", false)
	for what, err := range map[string]error{"qp": b.qp.Destroy(), "mr": b.mr.Close(), "cq": b.cq.Close()} {
		if err == nil {
			t.Errorf("%s: ended while its device is being removed", what)
		}
	}
	f.Remove("b", true)
	fatal()
	ok(t, b.qp.Destroy())
	ok(t, b.mr.Close())
	ok(t, b.cq.Close())
	ok(t, b.pd.Close())
	ok(t, b.dev.Close())
	ok(t, a.qp.Destroy())
}

// EIO of a device that has not said anything is an error.
func TestReviewIOErrorIsNoEnd(t *testing.T) {
	f, a, _ := pair(t, verbsfake.Options{})
	f.Fail("a", "ibv_destroy_qp", 1, syscall.EIO)
	if err := a.qp.Destroy(); !errors.Is(err, syscall.EIO) {
		t.Errorf("destroy: %v", err)
	}
	if n := f.Objects("a").QueuePairs; n != 1 {
		t.Errorf("%d queue pairs", n)
	}
}
