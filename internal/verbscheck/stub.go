//go:build !(cgo && linux && (amd64 || arm64))

package verbscheck

import (
	"context"

	"github.com/topoctl/topoctl/discover/replies"
)

// Try says that this program cannot ask the library.
func (s *Source) Try(context.Context) *replies.VerbsReport {
	_, err := s.load()
	return &replies.VerbsReport{Unavailable: reason(err)}
}
