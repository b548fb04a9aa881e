//go:build cgo && linux

package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/memory/cuda"
	mem "github.com/topoctl/topoctl/internal/base/engine/memory"
)

// On a machine with a GPU and NVIDIA's driver the real thing is tried: allocation,
// copies both ways, staging over each transport both ways, memory of others, export.
// Everywhere else it is skipped, with the reason.
func TestRealGPU(t *testing.T) {
	d, err := cuda.Open(cuda.Options{})
	if errors.Is(err, cuda.ErrUnavailable) {
		t.Skipf("no GPU with NVIDIA's driver here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	gpus := d.GPUs()
	for i, g := range gpus {
		t.Logf("%s: %+v", g, g.Info())
		other := gpus[(i+1)%len(gpus)]
		for _, over := range []string{"tcp", "shm"} {
			t.Run(fmt.Sprintf("%d/%s", i, over), func(t *testing.T) { realTransfer(t, g, other, over) })
		}
		t.Run(fmt.Sprintf("%d/export", i), func(t *testing.T) { realExport(t, g) })
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// realTransfer moves between a GPU and that, or another, of another engine, and compares
// every byte.
func realTransfer(t *testing.T, here, there *cuda.GPU, over string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	const size = 32<<20 + 4099
	server, client := newEngine(t, "server"), newEngine(t, "client")
	alloc := func(e *engine.Engine, g *cuda.GPU, name string, grant memory.Grant) *engine.Region {
		o := engine.RegionOptions{Name: name, Grant: grant}
		b, err := g.Alloc(size)
		if err != nil {
			t.Fatal(err)
		}
		r, err := e.Register(b, o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	theirs := alloc(server, there, "kv", memory.PeerRead|memory.PeerWrite)
	mine := alloc(client, here, "", memory.None)
	peer, err := client.Open(ctx, server.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	kv, err := peer.Region(ctx, "kv")
	if err != nil {
		t.Fatal(err)
	}
	want, got := make([]byte, size), make([]byte, size)
	source := rand.NewChaCha8([32]byte{1})
	for round := range 3 {
		_, _ = source.Read(want)
		if _, err := mine.WriteAt(want, 0); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		move(ctx, t, peer, engine.Op{Local: mine.All(), Remote: kv.At(0)}, over)
		wrote := time.Since(begin)
		if _, err := theirs.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("round %d: what was written is something else (%v)", round, err)
		}
		_, _ = source.Read(want)
		if _, err := theirs.WriteAt(want, 0); err != nil {
			t.Fatal(err)
		}
		begin = time.Now()
		move(ctx, t, peer, engine.ReadOp(mine.All(), kv.At(0)), over)
		t.Logf("%s: write %.2f GB/s, read %.2f GB/s", over, size/wrote.Seconds()/1e9, size/time.Since(begin).Seconds()/1e9)
		if _, err := mine.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("round %d: what was read is something else (%v)", round, err)
		}
	}
	if err := errors.Join(client.Close(), server.Close()); err != nil {
		t.Error(err)
	}
}

func move(ctx context.Context, t *testing.T, p *engine.Peer, op engine.Op, over string) {
	t.Helper()
	b, err := p.Submit(ctx, []engine.Op{op}, engine.SubmitOptions{Transport: over})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}

// realExport exports an allocation, and a part of it that is somebody else's.
func realExport(t *testing.T, g *cuda.GPU) {
	b, err := g.Alloc(4 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	address, _ := cuda.Pointer(b)
	part, err := g.Foreign(address+512, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer part.Free()
	if _, err := g.Foreign(address, 1<<40); err == nil {
		t.Error("a range beyond its allocation was taken")
	}
	for want, x := range map[int64]*memory.Block{0: b, 512: part} {
		fd, offset, err := (*mem.Block)(x).Device().DMABuf()
		if errors.Is(err, mem.ErrNoExport) && !g.Info().DMABuf {
			t.Skipf("this GPU or driver exports no dma-buf: %v", err)
		}
		if err != nil {
			t.Error(err)
			continue
		}
		if offset%int64(os.Getpagesize()) != want%int64(os.Getpagesize()) {
			t.Errorf("offset %d, want %d", offset, want)
		}
		link, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		t.Logf("exported as %s", link)
		_ = syscall.Close(fd)
	}
	if err := g.FlushRDMAWrites(); err != nil {
		t.Error(err)
	}
}
