//go:build !linux

package shm

import (
	"errors"
	"net"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

func supported() error {
	return pkgerr.Errorf("shm", "shared memory needs memfd (Linux): use another transport: %w", errors.ErrUnsupported)
}

func randomName() string { return "" }

func checkPeer(*net.UnixConn) error { return supported() }

func prefault([]byte, bool) {}

func hostNodes() []node { return nil }

func (node) enter() {}
