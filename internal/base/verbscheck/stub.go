//go:build !(cgo && linux && (amd64 || arm64))

package verbs

import (
	"context"

	"github.com/topoctl/topoctl/discover/topo"
)

// Try says that this program cannot ask the library.
func (s *Source) Try(context.Context) *topo.VerbsReport {
	_, err := s.load()
	return &topo.VerbsReport{Unavailable: reason(err)}
}
