// Package registry says where peers are: a Registry finds the addresses of an engine by
// name. P2P, the default, needs no server: the name is host:port. What the engine offers
// (ports, regions, topology) it tells its peers itself. Records are small, published under a
// lease and watched: the package etcd below keeps them in etcd, and another Registry may keep
// them elsewhere.
package registry

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/topoctl/topoctl/engine/internal/peerdoc"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Record is what a registry stores for an engine. It is small, so that thousands fit.
type Record struct {
	Name      string           `json:"name"`
	Epoch     uint64           `json:"epoch,string"` // 0 is unknown
	Addresses []netip.AddrPort `json:"addresses"`
	// Boot tells engines of one host: a digest of the boot ID of its kernel, "" if unknown. Loopback
	// addresses are of no use to engines of another host.
	Boot string `json:"boot,omitempty"`
	// Fingerprint is that of its topology, "" if unknown.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Serves is what peers can use it for, as it says itself, such as "probe" or "region:kv".
	Serves []string `json:"serves,omitempty"`
	// Stale is how old this copy is where the registry cannot reach its server and gives what it
	// knew last; 0: it is current.
	Stale time.Duration `json:"-"`
}

const (
	maxName      = 255 // bytes, also of a boot and a fingerprint
	maxAddresses = 4096
	maxServes    = 64 // words, each of maxName bytes
)

// Check says what is wrong with a record that is published or was read: no name, no epoch, too
// many addresses, or one that no peer can reach.
func (r *Record) Check() error {
	if err := errors.Join(peerdoc.CheckText("name", r.Name, 1, maxName), peerdoc.CheckText("boot", r.Boot, 0, maxName), peerdoc.CheckText("fingerprint", r.Fingerprint, 0, maxName)); err != nil {
		return pkgerr.Errorf("registry", "record: %w", err)
	}
	if len(r.Serves) > maxServes {
		return pkgerr.Errorf("registry", "record of %q: serves %d things: want at most %d", r.Name, len(r.Serves), maxServes)
	}
	for _, what := range r.Serves {
		if err := peerdoc.CheckText("serves", what, 1, maxName); err != nil {
			return pkgerr.Errorf("registry", "record of %q: %w", r.Name, err)
		}
	}
	if r.Epoch == 0 || len(r.Addresses) == 0 || len(r.Addresses) > maxAddresses {
		return pkgerr.Errorf("registry", "record of %q: epoch %d with %d addresses: want an epoch above 0, and 1 to %d addresses", r.Name, r.Epoch, len(r.Addresses), maxAddresses)
	}
	for _, a := range r.Addresses {
		if !a.IsValid() || a.Port() == 0 || a.Addr().IsUnspecified() {
			return pkgerr.Errorf("registry", "record of %q: address %s: want one that peers can reach", r.Name, a)
		}
	}
	return nil
}

// Equal says whether two records say the same, however old the copies are.
func (r *Record) Equal(o *Record) bool {
	return r.Name == o.Name && r.Epoch == o.Epoch && r.Boot == o.Boot && r.Fingerprint == o.Fingerprint && slices.Equal(r.Addresses, o.Addresses) && slices.Equal(r.Serves, o.Serves)
}

// Registry finds engines. It may be used by many goroutines.
type Registry interface {
	// Lookup finds an engine; the error wraps ErrNotFound if there is none of that name.
	Lookup(ctx context.Context, name string) (Record, error)
	// Publish stores a record until the lease is closed or cannot be renewed. Where the stored one's
	// epoch goes before (Precedes), it is refused with ErrOldEpoch. Where its own does (the engine was
	// restarted), it replaces that one, whose lease is lost.
	// One with the same epoch replaces it too: the record belongs to the new lease, and
	// the former one ends without being lost.
	Publish(ctx context.Context, r Record) (Lease, error)
	// Watch calls changed with the current record, then after each change, one call at a
	// time; of changes in quick succession only the last one is certain to be seen. When
	// the record is gone (its lease was closed or has expired) Watch calls changed with
	// the last record and gone set, and returns nil. It returns ctx's error when ctx
	// ends, ErrNotFound if there is no record, and ErrNoWatch if it cannot watch.
	Watch(ctx context.Context, name string, changed func(r Record, gone bool)) error
	// Close closes all leases and ends all watches of this registry; the watches, and
	// later calls, return ErrClosed.
	Close() error
}

// Lease is held for as long as a record is published.
type Lease interface {
	// Lost is closed when the record is gone although the lease was not closed: it could
	// not be renewed in time, or another epoch has the name.
	Lost() <-chan struct{}
	// Close removes the record, if it still belongs to this lease.
	Close() error
}

// Lister is a Registry that can list all its engines.
type Lister interface {
	// List gives all records.
	List(ctx context.Context) (Listing, error)
	// WatchAll calls changed with all records, then again after changes, one call at a time; of changes
	// in quick succession only the last is certain to be seen. While the server cannot be
	// reached the listing stays as it was. WatchAll returns ctx's error when ctx ends, and ErrClosed when the
	// registry is closed. What changed is called with is the callee's own.
	WatchAll(ctx context.Context, changed func(Listing)) error
}

// Listing is what a registry has, sorted by name.
type Listing struct {
	Records []Record
	// Bad are the keys whose records cannot be used, and why. They are never found by Lookup.
	Bad []BadRecord
}

// BadRecord is a record that cannot be used.
type BadRecord struct {
	Key   string `json:"key"`
	Error string `json:"error"`
}

// The errors of registries.
var (
	ErrNotFound = errors.New("no such engine")
	ErrNoWatch  = errors.New("this registry cannot watch")
	ErrOldEpoch = errors.New("a later epoch is published")
	ErrClosed   = errors.New("registry is closed")
	// ErrUnavailable: the registry's server cannot be reached, or does not answer in time.
	ErrUnavailable = errors.New("registry cannot be reached")
	// ErrDenied: the registry does not let this user do it.
	ErrDenied = errors.New("registry refuses")
)

// epochBits are the random bits of an epoch.
const epochBits = 20

// NewEpoch draws the epoch of an engine that starts now: milliseconds since 1970
// above 20 random bits. A restarted engine has a higher one as long as its clock
// does not go back; two that start at once differ.
func NewEpoch(now time.Time) uint64 {
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	return uint64(now.UnixMilli())<<epochBits | uint64(binary.LittleEndian.Uint32(random[:]))&(1<<epochBits-1)
}

// maxAhead is how far the clocks of hosts may be apart.
const maxAhead = 5 * time.Minute

// Precedes says whether the engine of one epoch goes before that of another that wants the same name: it was
// started later. Epochs that are minutes ahead of now were drawn by a clock that was wrong, or by hand, and go
// before none that is not.
func Precedes(epoch, other uint64, now time.Time) bool {
	ahead := func(epoch uint64) bool { return EpochTime(epoch).Sub(now) > maxAhead }
	if a, b := ahead(epoch), ahead(other); a != b {
		return b
	}
	return epoch > other
}

// EpochTime is when an epoch was drawn, by the clock of its engine's host.
func EpochTime(epoch uint64) time.Time { return time.UnixMilli(int64(epoch >> epochBits)) }
