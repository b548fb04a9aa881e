package transporttest

import (
	"context"
	"io"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

// Far makes the regions of an end that is on another machine. The transport of such an
// end asks that machine; its Register and Deregister are not called.
type Far interface {
	// Add allocates memory there, makes it a region of the end's table and registers it
	// with its transport.
	Add(name string, bytes int64, grant memory.Grant) (FarRegion, error)
}

// FarRegion is a region on another machine, whose bytes are read and written there, not
// by the transport under test.
type FarRegion interface {
	io.ReaderAt
	io.WriterAt
	// Remote is the region as a peer knows it.
	Remote() *transport.RemoteRegion
	// Close closes it as an engine does, and deregisters it.
	Close(ctx context.Context) error
}
