//go:build linux

package shm

import (
	"errors"
	"os"
	"testing"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport/transporttest"
)

// suiteEnd makes an end that the suite closes.
func suiteEnd(t testing.TB, dir string) transporttest.End {
	regions := memory.NewTable(64)
	s, err := New(Options{Dir: dir, Regions: regions, Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	return transporttest.End{Transport: s, Regions: regions, Endpoint: s.Endpoint()}
}

func TestTransport(t *testing.T) {
	// The runtime's poller keeps two descriptors from its first use on.
	first := suiteEnd(t, shortDir(t))
	if err := errors.Join(first.Transport.Close(), first.Regions.Close()); err != nil {
		t.Fatal(err)
	}
	// The requester copies by itself: a peer that stands still (TestSilentPeer) or
	// bytes that are held back are not possible here.
	transporttest.Run(t, transporttest.Harness{
		Uncounted: true,
		New: func(t testing.TB) *transporttest.Ends {
			dir := shortDir(t)
			t.Cleanup(func() {
				left, _ := os.ReadDir(dir)
				for _, e := range left {
					t.Errorf("%s is left in the directory", e.Name())
				}
			})
			return &transporttest.Ends{
				Active:  suiteEnd(t, dir),
				Passive: suiteEnd(t, dir),
				Restart: func(t testing.TB) transporttest.End { return suiteEnd(t, dir) },
			}
		},
	})
}
