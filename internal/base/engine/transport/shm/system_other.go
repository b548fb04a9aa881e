//go:build !linux

package shm

import (
	"net"

	"github.com/topoctl/topoctl/internal/base/pkgerr"
)

func supported() error {
	return pkgerr.New("shm", "shared memory needs memfd (Linux): use another transport")
}

func randomName() string { return "" }

func checkPeer(*net.UnixConn) error { return supported() }

func prefault([]byte, bool) {}

func hostNodes() []node { return nil }

func (node) enter() {}
