//go:build !(cgo && linux && (amd64 || arm64))

package rdma

import (
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/verbs"
)

// Transport is not there: such a program cannot load libibverbs.
type Transport struct{ transport.Transport }

// New says why there is no RDMA.
func New(Options, *verbs.Lib, func()) (*Transport, error) {
	_, err := verbs.Load()
	return nil, pkgerr.Errorf("rdma", "%w", unavailable{err})
}
