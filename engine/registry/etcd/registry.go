package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/topoctl/topoctl/engine/internal/peerdoc"
	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// etcd is a registry.Registry and a registry.Lister.
type etcd struct {
	o    Options
	keys keys

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup
	once    sync.Once

	// dialling is held while the client is made, leasing while a lease is granted.
	dialling, leasing chan struct{}

	mu     sync.Mutex // of all that follows
	closed bool
	client *clientv3.Client // nil until it was needed
	lease  *lease           // nil: none yet, or it is lost
	held   map[string]*held // by name
	known  map[string]known // what Lookup found
	away   bool             // the last request was not answered
}

// known is a record that was found, and when.
type known struct {
	record registry.Record
	at     time.Time
}

const (
	maxKnown = 1 << 12
	// pingTime is how long a connection may be silent; gRPC takes no less than 10 s.
	pingTime, pingTimeout = 10 * time.Second, 3 * time.Second
	maxMessage            = 16 << 20 // bytes of an answer
	maxAttempts           = 3        // of a request, each at another member
	// By these factors a look-up waits less where an answer is known, and again where etcd is away.
	knownFactor, awayFactor = 3, 4
)

// reconnect is how a member is tried again: after a long time without it, too, at least twice in the time of one
// request. gRPC's default is to wait for up to two minutes.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.5, MaxDelay: time.Second},
	MinConnectTimeout: defaultRequest,
}

// Open gives a registry in etcd; it is also a registry.Lister. It does not wait for etcd: until that
// answers, calls fail with registry.ErrUnavailable.
func Open(ctx context.Context, o Options) (registry.Registry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := o.complete(); err != nil {
		return nil, pkgerr.Errorf("etcd", "%w", err)
	}
	r := &etcd{
		o: o, keys: newKeys(o.Prefix), dialling: make(chan struct{}, 1), leasing: make(chan struct{}, 1),
		held: map[string]*held{}, known: map[string]known{},
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r, nil
}

// dial gives the client. With a user it asks etcd for a token first, so it may have to be tried again.
func (r *etcd) dial(ctx context.Context) (*clientv3.Client, error) {
	select {
	case r.dialling <- struct{}{}:
		defer func() { <-r.dialling }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	r.mu.Lock()
	c := r.client
	r.mu.Unlock()
	if c != nil {
		return c, nil
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints: r.o.Endpoints, TLS: r.o.TLS, Username: r.o.Username, Password: r.o.Password, DialTimeout: r.o.RequestTimeout,
		DialKeepAliveTime: pingTime, DialKeepAliveTimeout: pingTimeout, MaxCallRecvMsgSize: maxMessage, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(reconnect)},
	})
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errors.Join(registry.ErrClosed, c.Close())
	}
	r.client = c
	return c, nil
}

// do makes a request, at another member where one does not answer. Its error is that of ctx, ErrClosed,
// ErrDenied, ErrUnavailable, or etcd's about a lease, a revision or the size of an answer.
func (r *etcd) do(ctx context.Context, request func(context.Context, *clientv3.Client) error) error {
	return r.within(ctx, r.o.RequestTimeout, min(len(r.o.Endpoints), maxAttempts), request)
}

func (r *etcd) within(ctx context.Context, limit time.Duration, attempts int, request func(context.Context, *clientv3.Client) error) (err error) {
	for range attempts {
		if err = r.attempt(ctx, limit, request); !errors.Is(err, registry.ErrUnavailable) {
			break
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() == nil && !r.closed {
		r.away = errors.Is(err, registry.ErrUnavailable)
	}
	return err
}

func (r *etcd) attempt(ctx context.Context, limit time.Duration, request func(context.Context, *clientv3.Client) error) error {
	if r.ctx.Err() != nil {
		return registry.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	c, err := r.dial(limited)
	if err == nil {
		err = request(limited, c)
	}
	switch {
	case err == nil:
		return nil
	case r.ctx.Err() != nil:
		return registry.ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil: // our own limit: not that of the caller, who may have none
		return r.late(limit)
	}
	return explain(err)
}

func (r *etcd) late(limit time.Duration) error {
	return fmt.Errorf("%w: no answer from etcd at %s in %v", registry.ErrUnavailable, strings.Join(r.o.Endpoints, ", "), limit)
}

// explain says what an error of etcd's client means to users of a registry.
func explain(err error) error {
	switch known := rpctypes.Error(err); {
	case errors.Is(known, rpctypes.ErrPermissionDenied), errors.Is(known, rpctypes.ErrAuthFailed), errors.Is(known, rpctypes.ErrUserEmpty),
		errors.Is(known, rpctypes.ErrPermissionNotGranted):
		return fmt.Errorf("%w: %w", registry.ErrDenied, err)
	case isLeaseGone(err), errors.Is(known, rpctypes.ErrCompacted), errors.Is(known, rpctypes.ErrFutureRev):
		return err
	case status.Code(err) == codes.ResourceExhausted && !errors.Is(known, rpctypes.ErrTooManyRequests) && !errors.Is(known, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w: %w", errTooLarge, err)
	}
	return fmt.Errorf("%w: etcd: %w", registry.ErrUnavailable, err)
}

// errTooLarge: the answer has more bytes than are read.
var errTooLarge = errors.New("the answer is too large")

func isLeaseGone(err error) bool {
	return err != nil && errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseNotFound)
}

// Lookup implements registry.Registry.
func (r *etcd) Lookup(ctx context.Context, name string) (registry.Record, error) {
	out, err := r.lookup(ctx, name)
	if err != nil {
		return registry.Record{}, pkgerr.Errorf("etcd", "%w", err)
	}
	return out, nil
}

func (r *etcd) lookup(ctx context.Context, name string) (registry.Record, error) {
	if peerdoc.CheckText("name", name, 1, maxName) != nil {
		return registry.Record{}, registry.ErrNotFound
	}
	r.mu.Lock()
	before, isKnown := r.known[name]
	away := r.away
	r.mu.Unlock()
	limit, attempts := r.o.RequestTimeout, min(len(r.o.Endpoints), maxAttempts)
	if isKnown {
		limit /= knownFactor
		if away {
			limit, attempts = limit/awayFactor, 1
		}
		if deadline, ok := ctx.Deadline(); ok { // there is time to say what is known
			limit = min(limit, time.Until(deadline)/time.Duration(2*attempts))
		}
	}
	var got *clientv3.GetResponse
	err := r.within(ctx, limit, attempts, func(ctx context.Context, c *clientv3.Client) (err error) {
		got, err = c.Get(ctx, r.keys.of(name))
		return err
	})
	switch {
	case errors.Is(err, registry.ErrUnavailable) && isKnown:
		out := clone(before.record)
		out.Stale = max(time.Since(before.at), 1)
		return out, nil
	case err != nil:
		return registry.Record{}, err
	case len(got.Kvs) == 0:
		r.forget(name)
		return registry.Record{}, registry.ErrNotFound
	}
	out, err := r.keys.decode(got.Kvs[0])
	if err != nil {
		r.forget(name)
		return registry.Record{}, fmt.Errorf("%w that can be used: its record in etcd: %w", registry.ErrNotFound, pkgerr.Plain(err))
	}
	r.remember(out)
	return out, nil
}

// remember keeps what was found for the time when etcd is away.
func (r *etcd) remember(list ...registry.Record) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range list {
		if _, ok := r.known[rec.Name]; !ok && len(r.known) >= maxKnown {
			for name := range r.known { // any: maps are not in order
				delete(r.known, name)
				break
			}
		}
		r.known[rec.Name] = known{clone(rec), now}
	}
}

func (r *etcd) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, name)
}

// maxName bounds names in bytes, as registry.Record.Check does.
const maxName = 255

func clone(r registry.Record) registry.Record {
	r.Addresses, r.Serves = slices.Clone(r.Addresses), slices.Clone(r.Serves)
	return r
}

// Close implements registry.Registry. It removes the records; where etcd does not answer, they end
// with their TTL, and the error says so.
func (r *etcd) Close() (err error) {
	r.once.Do(func() { err = r.close() })
	r.running.Wait()
	return err
}

func (r *etcd) close() error {
	r.mu.Lock()
	r.closed = true
	c, l, held := r.client, r.lease, r.held
	r.lease, r.held = nil, nil
	for _, h := range held {
		h.end()
	}
	r.mu.Unlock()
	r.cancel()
	if c == nil {
		return nil
	}
	var err error
	if l != nil {
		for range min(len(r.o.Endpoints), maxAttempts) { // at another member where one does not answer
			if err = r.revoke(c, l); !errors.Is(err, registry.ErrUnavailable) {
				break
			}
		}
		switch {
		case isLeaseGone(err) || len(held) == 0:
			err = nil
		case err != nil:
			err = pkgerr.Errorf("etcd", "removing %d records, which end within %v: %w", len(held), l.ttl, err)
		}
	}
	if closed := c.Close(); closed != nil && !errors.Is(closed, context.Canceled) {
		err = errors.Join(err, pkgerr.Errorf("etcd", "%w", closed))
	}
	return err
}

// revoke ends a lease of a registry that is closed.
func (r *etcd) revoke(c *clientv3.Client, l *lease) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), r.o.RequestTimeout)
	defer cancel()
	_, err := c.Revoke(ctx, l.id)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return r.late(r.o.RequestTimeout)
	}
	return explain(err)
}
