//go:build !linux

package local

import (
	"errors"

	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/cpuset"
	"github.com/topoctl/topoctl/probe/internal/lane"
)

// thisSystem is the one that this process runs on, about which only Linux says enough.
func thisSystem() system {
	no := errors.New("only Linux ties threads to CPUs")
	return system{
		allowed:   func() (cpuset.Set, error) { return cpuset.Set{}, no },
		pin:       func(int) (func(), error) { return nil, no },
		available: func() (int64, bool) { return 0, false },
		alloc:     memory.Alloc,
		load:      lane.LoadNow,
		smaps:     func() string { return "" },
	}
}
