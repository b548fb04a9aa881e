package etcd

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/topoctl/topoctl/engine/internal/peerdoc"
	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

const (
	// coalesce is how long changes are collected before they are told.
	coalesce = 20 * time.Millisecond
	pageKeys = 256 // of one request for a listing
)

// follow tells of all events from a revision on, until ctx or the registry ends, or one of the functions
// gives an error. Where events were missed (etcd has compacted them, or the watch has ended) reset looks
// at what is there now and gives the revision to go on from.
func (r *etcd) follow(ctx context.Context, key string, from int64, reset func(context.Context) (int64, error), told func([]*clientv3.Event) error, opts ...clientv3.OpOption) error {
	for {
		if err := r.watchFrom(ctx, key, from, told, opts); err != nil {
			return err
		}
		for {
			if !sleep(ctx, jitter(retryTime)) {
				return r.ended(ctx)
			}
			next, err := reset(ctx)
			if err == nil {
				from = next
				break
			}
			if !errors.Is(err, registry.ErrUnavailable) {
				return err
			}
		}
	}
}

// watchFrom tells of events until the watch ends, which is no error.
func (r *etcd) watchFrom(ctx context.Context, key string, from int64, told func([]*clientv3.Event) error, opts []clientv3.OpOption) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	r.mu.Lock()
	c := r.client
	r.mu.Unlock()
	if c == nil || ctx.Err() != nil {
		return r.ended(ctx)
	}
	// Without a leader nothing would come, and no one would say so.
	changes := c.Watch(clientv3.WithRequireLeader(ctx), key, append([]clientv3.OpOption{clientv3.WithRev(from)}, opts...)...)
	for answer := range changes {
		if answer.Err() != nil {
			break
		}
		events := answer.Events
		if len(events) == 0 {
			continue
		}
		events = collect(changes, events)
		if err := told(events); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return r.ended(ctx)
	}
	return nil
}

// collect adds what comes in a short while: many changes are told at once.
func collect(changes clientv3.WatchChan, events []*clientv3.Event) []*clientv3.Event {
	enough := time.NewTimer(coalesce)
	defer enough.Stop()
	for {
		select {
		case next := <-changes: // one that has ended gives no events, here and to the caller
			if len(next.Events) == 0 {
				return events
			}
			events = append(events, next.Events...)
		case <-enough.C:
			return events
		}
	}
}

// ended is why something has ended with ctx or with the registry.
func (r *etcd) ended(ctx context.Context) error {
	if r.ctx.Err() != nil {
		return registry.ErrClosed
	}
	return ctx.Err()
}

func (r *etcd) getOne(ctx context.Context, key string) (got *clientv3.GetResponse, err error) {
	err = r.do(ctx, func(ctx context.Context, c *clientv3.Client) (err error) {
		got, err = c.Get(ctx, key)
		return err
	})
	return got, err
}

// Watch implements registry.Registry.
func (r *etcd) Watch(ctx context.Context, name string, changed func(rec registry.Record, gone bool)) error {
	err := r.watchName(ctx, name, changed)
	if err != nil && !errors.Is(err, ctx.Err()) && !errors.Is(err, registry.ErrClosed) {
		return pkgerr.Errorf("etcd", "watch of %q: %w", peerdoc.Clip(name), err)
	}
	return err
}

// errGone ends the watch of a record.
var errGone = errors.New("the record is gone")

func (r *etcd) watchName(ctx context.Context, name string, changed func(rec registry.Record, gone bool)) error {
	if peerdoc.CheckText("name", name, 1, maxName) != nil {
		return registry.ErrNotFound
	}
	key := r.keys.of(name)
	var last registry.Record
	seen := int64(0) // revision of last
	look := func(kv *mvccpb.KeyValue) error {
		if kv == nil {
			return errGone
		}
		rec, err := r.keys.decode(kv)
		if err != nil {
			r.o.Logger.Warn("a record in etcd cannot be used", "engine", name, "error", err)
			return nil // the last one counts until there is another
		}
		if kv.ModRevision > seen {
			last, seen = rec, kv.ModRevision
			r.remember(rec)
			changed(clone(rec), false)
		}
		return nil
	}
	reset := func(ctx context.Context) (int64, error) {
		got, err := r.getOne(ctx, key)
		if err != nil {
			return 0, err
		}
		var kv *mvccpb.KeyValue
		if len(got.Kvs) > 0 {
			kv = got.Kvs[0]
		}
		return got.Header.Revision + 1, look(kv)
	}
	from, err := reset(ctx)
	if seen == 0 {
		if err == nil || errors.Is(err, errGone) {
			err = registry.ErrNotFound
		}
		return err
	}
	if err == nil {
		err = r.follow(ctx, key, from, reset, func(events []*clientv3.Event) error {
			// Only the last event says what is there, unless the record was gone between.
			for i, e := range events {
				switch {
				case e.Type == clientv3.EventTypeDelete:
					return errGone
				case i == len(events)-1 || events[i+1].Type == clientv3.EventTypeDelete:
					if err := look(e.Kv); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	if errors.Is(err, errGone) {
		r.forget(name)
		changed(clone(last), true)
		return nil
	}
	return err
}

// listing is what there is below the prefix.
type listing map[string]entry

// entry is a record, or why it cannot be used.
type entry struct {
	record registry.Record
	bad    error
}

func (l listing) put(k keys, kv *mvccpb.KeyValue) {
	rec, err := k.decode(kv)
	if _, known := l[string(kv.Key)]; known || len(l) < maxKeys {
		l[string(kv.Key)] = entry{rec, err}
	}
}

// all is the listing as users see it.
func (l listing) all() registry.Listing {
	var out registry.Listing
	for _, key := range slices.Sorted(maps.Keys(l)) {
		if e := l[key]; e.bad != nil {
			out.Bad = append(out.Bad, registry.BadRecord{Key: key, Error: pkgerr.Message(e.bad)})
		} else {
			out.Records = append(out.Records, clone(e.record))
		}
	}
	slices.SortFunc(out.Records, func(a, b registry.Record) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// list reads all keys as they are at one revision.
func (r *etcd) list(ctx context.Context) (out listing, revision int64, err error) {
	out = listing{}
	end, next, page := clientv3.GetPrefixRangeEnd(r.keys.prefix), r.keys.prefix, int64(pageKeys)
	for {
		var got *clientv3.GetResponse
		err := r.do(ctx, func(ctx context.Context, c *clientv3.Client) (err error) {
			got, err = c.Get(ctx, next, clientv3.WithRange(end), clientv3.WithLimit(page), clientv3.WithRev(revision))
			return err
		})
		if errors.Is(err, errTooLarge) && page > 1 {
			page /= 8
			page = max(page, 1)
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		if revision == 0 {
			revision = got.Header.Revision
		}
		for _, kv := range got.Kvs {
			out.put(r.keys, kv)
		}
		if !got.More || len(got.Kvs) == 0 || len(out) >= maxKeys {
			return out, revision, nil
		}
		next = string(got.Kvs[len(got.Kvs)-1].Key) + "\x00"
	}
}

// List implements registry.Lister.
func (r *etcd) List(ctx context.Context) (registry.Listing, error) {
	l, _, err := r.list(ctx)
	if err != nil {
		return registry.Listing{}, pkgerr.Errorf("etcd", "listing: %w", err)
	}
	out := l.all()
	r.remember(out.Records...)
	return out, nil
}

// WatchAll implements registry.Lister.
func (r *etcd) WatchAll(ctx context.Context, changed func(registry.Listing)) error {
	err := r.watchAll(ctx, changed)
	if err != nil && !errors.Is(err, ctx.Err()) && !errors.Is(err, registry.ErrClosed) {
		return pkgerr.Errorf("etcd", "watch of all engines: %w", err)
	}
	return err
}

func (r *etcd) watchAll(ctx context.Context, changed func(registry.Listing)) error {
	var now listing
	tell := func() {
		l := now.all()
		r.remember(l.Records...)
		changed(l)
	}
	reset := func(ctx context.Context) (int64, error) {
		l, revision, err := r.list(ctx)
		if err != nil {
			return 0, err
		}
		now = l
		tell()
		return revision + 1, nil
	}
	from, err := reset(ctx)
	if err != nil {
		return err
	}
	return r.follow(ctx, r.keys.prefix, from, reset, func(events []*clientv3.Event) error {
		for _, e := range events {
			if e.Type == clientv3.EventTypeDelete {
				delete(now, string(e.Kv.Key))
			} else {
				now.put(r.keys, e.Kv)
			}
		}
		tell()
		return nil
	}, clientv3.WithPrefix())
}
