//go:build cgo && linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/memory/cuda"
)

// brokenContext runs a kernel that traps while GPU memory moves. The driver ends the context of
// this process: transfers of GPU memory end with an error that says so, those of host memory go
// on between the same engines, and both engines close.
func brokenContext(ctx context.Context, c *check) error {
	d, err := open()
	if err != nil {
		return err
	}
	g := d.GPUs()[0]
	for _, over := range []string{"tcp", "shm"} {
		if err := works(ctx, g, over); err != nil {
			return fmt.Errorf("before the kernel, over %s: %w", over, err)
		}
	}
	const size = 32 << 20
	p, err := newPair(ctx, g, g, size)
	if err != nil {
		return err
	}
	host, theirs, err := hostRegions(ctx, p)
	if err != nil {
		return errors.Join(err, p.close())
	}
	ended := make(chan error, 1)
	go func() {
		for {
			if err := p.do(ctx, "tcp", engine.Op{Local: p.mine.All(), Remote: p.kv.At(0)}); err != nil {
				ended <- err
				return
			}
		}
	}()
	time.Sleep(50 * time.Millisecond) // some transfers are over, one is under way
	code := breakContext(g.Info().Ordinal)
	fmt.Fprintln(os.Stdout, "the kernel ended with", code)
	if code == 0 {
		return errors.New("the kernel that traps has not failed")
	}
	if code < 0 {
		return cannot("the driver lacks what runs a kernel")
	}
	begin := time.Now()
	select {
	case err := <-ended:
		fmt.Fprintf(os.Stdout, "the transfer ended after %v: %v\n", time.Since(begin), err)
		if !errors.Is(err, memory.ErrDevice) {
			c.wrongf("the transfer's error is not memory.ErrDevice: %v", err)
		}
		// The peer, whose context it was as well, tells no names.
		if text := err.Error(); !strings.Contains(text, g.String()) && !strings.Contains(text, "refused by the peer") {
			c.wrongf("the transfer's error names neither the GPU nor the peer: %v", err)
		}
	case <-time.After(20 * time.Second):
		c.wrongf("the transfer has not ended 20 s after the kernel")
	}
	if err := hostStillMoves(ctx, p, host, theirs); err != nil {
		c.wrongf("host memory between the same engines: %v", err)
	}
	begin = time.Now()
	if err := p.close(); err != nil {
		fmt.Fprintln(os.Stdout, "closing the engines:", err)
	}
	c.figure("closing both engines afterwards", time.Since(begin).Seconds(), "s", 0)
	return nil
}

func works(ctx context.Context, g *cuda.GPU, over string) error {
	p, err := newPair(ctx, g, g, 1<<20)
	if err != nil {
		return err
	}
	return errors.Join(p.do(ctx, over, engine.Op{Local: p.mine.All(), Remote: p.kv.At(0)}), p.close())
}

func hostRegions(ctx context.Context, p *pair) (mine *engine.Region, theirs *engine.RemoteRegion, err error) {
	const size = 4 << 20
	if mine, err = p.client.Alloc(size, engine.RegionOptions{}); err != nil {
		return nil, nil, err
	}
	if _, err = p.server.Alloc(size, engine.RegionOptions{Name: "host", Grant: memory.PeerRead | memory.PeerWrite}); err != nil {
		return nil, nil, err
	}
	theirs, err = p.peer.Region(ctx, "host")
	return mine, theirs, err
}

func hostStillMoves(ctx context.Context, p *pair, mine *engine.Region, theirs *engine.RemoteRegion) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for _, over := range []string{"tcp", "shm"} {
		want := random(rand.NewChaCha8([32]byte{5}), mine.Size())
		copy(mine.Bytes(), want)
		if err := p.do(ctx, over, engine.Op{Local: mine.All(), Remote: theirs.At(0)}); err != nil {
			return fmt.Errorf("%s: write: %w", over, err)
		}
		clear(mine.Bytes())
		if err := p.do(ctx, over, engine.ReadOp(mine.All(), theirs.At(0))); err != nil {
			return fmt.Errorf("%s: read: %w", over, err)
		}
		if !bytes.Equal(mine.Bytes(), want) {
			return fmt.Errorf("%s: what comes back is something else", over)
		}
	}
	return nil
}
