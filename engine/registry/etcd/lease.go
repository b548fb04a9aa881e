package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// lease is the lease of all records of a registry.
type lease struct {
	id  clientv3.LeaseID
	ttl time.Duration
	// until is when etcd ends it at the earliest, by our clock; its keeper's own.
	until time.Time
}

// held is a record that is published: a registry.Lease.
type held struct {
	r     *etcd
	name  string
	epoch uint64
	lease *lease
	mod   int64 // the revision of etcd that has our record
	lost  chan struct{}
	stop  context.CancelFunc // of its watch
	over  bool               // by the registry's mutex: it is not ours any more, or was given up
}

const (
	// maxConflicts is how often a record may be changed by others while it is published.
	maxConflicts = 256
	// minRenew and maxRenew bound the pause between two renewals of which the first had no answer.
	minRenew, maxRenew = 200 * time.Millisecond, 5 * time.Second
	// retryTime is the pause before something in the background is tried again.
	retryTime = time.Second
)

// Publish implements registry.Registry.
func (r *etcd) Publish(ctx context.Context, rec registry.Record) (registry.Lease, error) {
	h, err := r.publish(ctx, rec)
	if err != nil {
		return nil, pkgerr.Errorf("etcd", "%w", err)
	}
	return h, nil
}

func (r *etcd) publish(ctx context.Context, rec registry.Record) (*held, error) {
	value, err := encode(rec)
	if err != nil {
		return nil, err
	}
	for range maxConflicts {
		l, err := r.granted(ctx)
		if err != nil {
			return nil, err
		}
		mod, err := r.put(ctx, rec, value, l)
		switch {
		case isLeaseGone(err):
			r.leaseGone(l)
		case err != nil:
			return nil, fmt.Errorf("record of %q: %w", rec.Name, err)
		case mod != 0:
			return r.hold(rec, l, mod)
		}
	}
	return nil, fmt.Errorf("record of %q: others change it all the time: %w", rec.Name, registry.ErrUnavailable)
}

// put stores a record unless one that goes before it is there; 0: it was changed meanwhile.
func (r *etcd) put(ctx context.Context, rec registry.Record, value string, l *lease) (mod int64, err error) {
	key := r.keys.of(rec.Name)
	var got *clientv3.GetResponse
	err = r.do(ctx, func(ctx context.Context, c *clientv3.Client) (err error) {
		got, err = c.Get(ctx, key)
		return err
	})
	if err != nil {
		return 0, err
	}
	seen := int64(0)
	if len(got.Kvs) > 0 {
		seen = got.Kvs[0].ModRevision
		there, bad := r.keys.decode(got.Kvs[0])
		switch {
		case bad != nil: // it is nobody's
			r.o.Logger.Warn("a record in etcd cannot be used: this engine's takes its place", "engine", rec.Name, "error", bad)
		case registry.Precedes(there.Epoch, rec.Epoch, time.Now()):
			return 0, fmt.Errorf("epoch %d, there is %d: %w", rec.Epoch, there.Epoch, registry.ErrOldEpoch)
		case there.Epoch > rec.Epoch:
			r.o.Logger.Warn("a record in etcd is of a time that has not come: this engine's takes its place; are the clocks of all hosts right?", "engine", rec.Name, "time", registry.EpochTime(there.Epoch).UTC())
		}
	}
	err = r.do(ctx, func(ctx context.Context, c *clientv3.Client) error {
		done, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", seen)).Then(clientv3.OpPut(key, value, clientv3.WithLease(l.id))).Commit()
		if err == nil && done.Succeeded {
			mod = done.Header.Revision
		}
		return err
	})
	return mod, err
}

// hold takes a record in that was stored.
func (r *etcd) hold(rec registry.Record, l *lease, mod int64) (*held, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, registry.ErrClosed
	}
	if before := r.held[rec.Name]; before != nil {
		if before.epoch != rec.Epoch {
			before.lose()
		}
		before.end()
	}
	h := &held{r: r, name: rec.Name, epoch: rec.Epoch, lease: l, mod: mod, lost: make(chan struct{})}
	ctx, cancel := context.WithCancel(r.ctx)
	h.stop = cancel
	r.held[rec.Name] = h
	r.running.Go(func() { defer cancel(); h.watch(ctx) })
	return h, nil
}

// end and lose give a record up; the mutex is held.
func (h *held) end() {
	if !h.over {
		h.over = true
		h.stop()
		if h.r.held[h.name] == h {
			delete(h.r.held, h.name)
		}
	}
}

func (h *held) lose() {
	if !h.over {
		close(h.lost)
		h.end()
	}
}

// Lost implements registry.Lease.
func (h *held) Lost() <-chan struct{} { return h.lost }

// Close implements registry.Lease.
func (h *held) Close() error {
	h.r.mu.Lock()
	over := h.over
	h.end()
	h.r.mu.Unlock()
	if over {
		return nil
	}
	key := h.r.keys.of(h.name)
	err := h.r.do(context.WithoutCancel(h.r.ctx), func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", h.mod)).Then(clientv3.OpDelete(key)).Commit()
		return err
	})
	if err != nil && !errors.Is(err, registry.ErrClosed) {
		return pkgerr.Errorf("etcd", "removing the record of %q, which ends with this program: %w", h.name, err)
	}
	return nil
}

// watch looks at what becomes of the record in etcd.
func (h *held) watch(ctx context.Context) {
	r, key := h.r, h.r.keys.of(h.name)
	look := func(kv *mvccpb.KeyValue) { // nil: it is not there
		if kv != nil && kv.ModRevision <= h.mod {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if kv != nil {
			if now, err := r.keys.decode(kv); err == nil && now.Epoch == h.epoch {
				h.end() // it is another lease's now
				return
			}
		}
		h.lose()
	}
	_ = r.follow(ctx, key, h.mod+1, func(ctx context.Context) (int64, error) {
		got, err := r.getOne(ctx, key)
		if err != nil {
			return 0, err
		}
		if len(got.Kvs) == 0 {
			look(nil)
		} else {
			look(got.Kvs[0])
		}
		return got.Header.Revision + 1, nil
	}, func(events []*clientv3.Event) error {
		for _, e := range events {
			if e.Type == clientv3.EventTypeDelete {
				look(nil)
			} else {
				look(e.Kv)
			}
		}
		return nil
	})
}

// granted gives the registry's lease, and gets one from etcd if it has none.
func (r *etcd) granted(ctx context.Context) (*lease, error) {
	select {
	case r.leasing <- struct{}{}:
		defer func() { <-r.leasing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-r.ctx.Done():
		return nil, registry.ErrClosed
	}
	r.mu.Lock()
	l := r.lease
	r.mu.Unlock()
	if l != nil && r.ctx.Err() == nil {
		return l, ctx.Err()
	}
	var sent time.Time
	l = &lease{}
	err := r.do(ctx, func(ctx context.Context, c *clientv3.Client) error {
		sent = time.Now()
		answer, err := c.Grant(ctx, int64(r.o.TTL/time.Second))
		if err == nil {
			l.id, l.ttl = answer.ID, time.Duration(answer.TTL)*time.Second
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	l.until = sent.Add(l.ttl)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, registry.ErrClosed // what was granted just now has no keys and ends by itself
	}
	r.lease = l
	r.running.Go(func() { r.keep(l) })
	return l, nil
}

// keep renews a lease at half of the time that it has left, until etcd says that it is gone. While etcd
// does not answer nothing is known, and nothing is lost.
func (r *etcd) keep(l *lease) {
	failing := false
	for {
		pause := min(max(time.Until(l.until)/2, minRenew), l.ttl/2)
		if failing {
			pause = min(pause, maxRenew)
		}
		if !sleep(r.ctx, jitter(pause)) {
			return
		}
		limit := min(r.o.RequestTimeout, max(time.Until(l.until)/2, minRenew*2))
		sent, left := time.Time{}, time.Duration(0)
		err := r.within(r.ctx, limit, 1, func(ctx context.Context, c *clientv3.Client) error {
			sent = time.Now()
			answer, err := c.KeepAliveOnce(ctx, l.id)
			if err == nil {
				left = time.Duration(answer.TTL) * time.Second
			}
			return err
		})
		switch {
		case r.ctx.Err() != nil:
			return
		case isLeaseGone(err):
			r.leaseGone(l)
			return
		case err == nil:
			if failing {
				r.o.Logger.Info("etcd answers again: the record of this engine is renewed")
			}
			l.until, failing = sent.Add(left), false
		case !failing:
			r.o.Logger.Warn("etcd does not renew the record of this engine; it is tried again", "error", err, "ends_in", max(0, time.Until(l.until)).Round(time.Millisecond))
			failing = true
		}
		r.mu.Lock()
		current := r.lease == l
		r.mu.Unlock()
		if !current {
			return
		}
	}
}

// leaseGone takes out a lease that etcd does not know any more, and all that was under it.
func (r *etcd) leaseGone(l *lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lease == l {
		r.lease = nil
	}
	for _, h := range r.held {
		if h.lease == l {
			h.lose()
		}
	}
}

// jitter is up to a tenth less, so that many do not do the same at once.
func jitter(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/10+1))
}

// sleep waits; false: ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
