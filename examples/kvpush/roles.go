package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/trust"
)

// prefill computes the cache and pushes it to the decode process.
func prefill(ctx context.Context, o options, out io.Writer) (err error) {
	e, err := engine.New(ctx, engine.Options{Name: "prefill", Security: engine.Security{Credentials: trust.Secret(o.token)}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	cache, err := e.Alloc(place(o.layers, 0), engine.RegionOptions{Name: "kv"})
	if err != nil {
		return err
	}
	peer, err := e.Target(o.prefill).Peer(ctx) // waits until it is there
	if err != nil {
		return err
	}
	theirs, err := peer.Region(ctx, "kv")
	if err != nil {
		return err
	}
	from, to := table(prefillSeed, o.pages), table(decodeSeed, o.pages)
	for i := range o.layers * o.pages { // stands for computing the cache
		copy(cache.Bytes()[place(i/o.pages, from[i%o.pages]):], content(i/o.pages, i%o.pages))
	}
	batches := make([]*engine.Batch, o.layers)
	start := time.Now()
	for i := range batches {
		push := engine.WritePages(cache.Span(place(i, 0), 0), from, theirs.At(place(i, 0)), to, pageBytes)
		complete := engine.SubmitOptions{Label: fmt.Sprint("layer ", i), Notify: binary.BigEndian.AppendUint32(nil, uint32(i))}
		if batches[i], err = peer.Submit(ctx, []engine.Op{push}, complete); err != nil {
			return err
		}
	}
	for _, b := range batches {
		if err := b.Wait(ctx); err != nil {
			return err
		}
	}
	took, total := time.Since(start), float64(o.layers)*float64(o.pages)*pageBytes
	fmt.Fprint(out, batches[o.layers-1].Explain().Text())
	fmt.Fprintf(out, "prefill pushed %.0f MB in %v: %.2f GB/s\n", total/1e6, took.Round(time.Microsecond), total/1e9/took.Seconds())
	return nil
}

// decode receives the layers and checks each one when it is complete.
func decode(ctx context.Context, o options, out io.Writer) (err error) {
	both := o.decode == ""
	if both {
		o.decode = "127.0.0.1:0"
	}
	e, err := engine.New(ctx, engine.Options{Name: "decode", Listen: []string{o.decode}, Security: engine.Security{Credentials: trust.Secret(o.token)}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	cache, err := e.Alloc(place(o.layers, 0), engine.RegionOptions{Name: "kv", Grant: memory.PeerWrite})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "decode listens at %s\n", e.Addrs()[0])
	pushed := make(chan error, 1)
	if both {
		o.prefill = e.Addrs()[0].String()
		go func() { pushed <- prefill(ctx, o, out) }()
	}
	for complete := 0; complete < o.layers; {
		select {
		case n := <-e.Notifications():
			layer := int(binary.BigEndian.Uint32(n.Payload))
			for page, at := range table(decodeSeed, o.pages) {
				got := cache.Bytes()[place(layer, at):place(layer, at+1)]
				if !bytes.Equal(got, content(layer, page)) {
					return fmt.Errorf("layer %d from %s: page %d is not what was computed", layer, n.From.Claimed, page)
				}
			}
			complete++
		case err := <-pushed:
			if both = false; err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	fmt.Fprintf(out, "decode has %d layers of %d pages, all as they should be\n", o.layers, o.pages)
	if both {
		return <-pushed
	}
	return nil
}
