// Package verbscheck tries the RDMA devices of the running host: each is opened, asked
// for its limits and ports, and given memory to register for a moment. What comes
// of it is for the checks of a host: a device can be there, be up, and yet refuse.
//
// libibverbs is loaded when it is asked for, so the program runs where there is
// none. Without cgo, or where no library is, the report says so.
//
// A driver that hangs cannot be interrupted. Such a device is given up after a
// while, and the goroutine that asks it ends when the driver answers.
package verbscheck

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/internal/verbs"
)

// Source tries devices. It is safe for concurrent use.
type Source struct {
	load  func() (*verbs.Lib, error)
	limit time.Duration            // for each device
	run   func(*trial, *verbs.Lib) // nil: as it should be; tests have devices that hang
}

// trial is one device at work.
type trial struct {
	answer replies.VerbsDevice // of the goroutine that runs

	mu   sync.Mutex
	step string // what the device is being asked
}

// deviceLimit is how long a device may take. Opening one of the slowest and pinning
// 16 MiB takes well below a second.
const deviceLimit = 5 * time.Second

// New is the system's libibverbs, as the dynamic linker finds it.
func New() *Source { return &Source{load: verbs.Load, limit: deviceLimit} }

// The sizes that are registered, in bytes: one page, which any limit but 0 holds, and
// what a small region and the queues of some connections need.
const (
	onePage = 4096
	region  = 16 << 20
)

// reason is why the library cannot be asked, without what every such error begins
// with.
func reason(err error) string {
	if err == nil {
		return "libibverbs gave no answer"
	}
	text := err.Error()
	if errors.Is(err, verbs.ErrUnavailable) {
		text = strings.TrimPrefix(text, verbs.ErrUnavailable.Error()+": ")
	}
	return text
}
