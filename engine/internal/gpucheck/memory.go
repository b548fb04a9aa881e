//go:build cgo && linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/topoctl/topoctl/engine"
	mem "github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/memory/cuda"
	"github.com/topoctl/topoctl/pathsel"
)

// random gives bytes that differ from one call to the next.
func random(source *rand.ChaCha8, size int64) []byte {
	b := make([]byte, size)
	_, _ = source.Read(b)
	return b
}

// large is the size of one large transfer.
func large() int64 {
	if standIn() {
		return 2 << 20
	}
	return 256 << 20
}

// deviceMemory allocates, writes and reads, takes memory of others by address, and exports.
func deviceMemory(_ context.Context, c *check) error {
	d, err := open()
	if err != nil {
		return err
	}
	source := rand.NewChaCha8([32]byte{1})
	for _, g := range d.GPUs() {
		fmt.Fprintf(os.Stdout, "%s: %+v\n", g, g.Info())
		for _, size := range []int64{1, 4097, large() + 3} {
			if err := writeAndRead(g, random(source, size)); err != nil {
				c.wrongf("%s, %d bytes: %v", g, size, err)
			}
		}
		if err := foreign(c, g, source); err != nil {
			c.wrongf("%s: memory of others: %v", g, err)
		}
		if _, err := g.Alloc(1 << 50); err == nil {
			c.wrongf("%s: gives a pebibyte", g)
		} else {
			fmt.Fprintln(os.Stdout, "a pebibyte:", err)
		}
	}
	return d.Close()
}

func writeAndRead(g *cuda.GPU, want []byte) error {
	b, err := g.Alloc(int64(len(want)))
	if err != nil {
		return err
	}
	got := make([]byte, len(want))
	if _, err = b.WriteAt(want, 0); err == nil {
		_, err = b.ReadAt(got, 0)
	}
	if err == nil && !bytes.Equal(got, want) {
		err = errors.New("what comes back is something else")
	}
	return errors.Join(err, b.Free())
}

// foreign takes a part of an allocation by its address, refuses what is not one, and exports
// both as far as the driver does.
func foreign(c *check, g *cuda.GPU, source *rand.ChaCha8) error {
	b, err := g.Alloc(4 << 20)
	if err != nil {
		return err
	}
	address, _ := cuda.Pointer(b)
	part, err := g.Foreign(address+512, 1<<20)
	if err != nil {
		return errors.Join(err, b.Free())
	}
	want, got := random(source, 1<<20), make([]byte, 1<<20)
	if _, err := part.WriteAt(want, 0); err != nil {
		return err
	}
	if _, err := b.ReadAt(got, 512); err != nil || !bytes.Equal(got, want) {
		c.wrongf("%s: written by address, read something else from the allocation (%v)", g, err)
	}
	if _, err := g.Foreign(address, 1<<40); err == nil {
		c.wrongf("%s: takes a range beyond its allocation", g)
	}
	for off, x := range map[int64]*memory.Block{0: b, 512: part} {
		fd, offset, err := (*mem.Block)(x).Device().DMABuf()
		switch {
		case errors.Is(err, mem.ErrNoExport):
			c.cannotf("%s: export as dma-buf: %v", g, err)
			continue
		case err != nil:
			c.wrongf("%s: export as dma-buf: %v", g, err)
			continue
		}
		page := int64(os.Getpagesize())
		c.equal(fmt.Sprintf("%s: offset of the export of byte %d in its page", g, off), offset%page, off%page)
		link, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		fmt.Fprintln(os.Stdout, "exported as", link)
		if err := syscall.Close(fd); err != nil {
			return err
		}
	}
	if err := errors.Join(g.FlushRDMAWrites(), part.Free(), b.Free()); err != nil {
		return err
	}
	if _, err := g.Foreign(address, 4096); err == nil {
		c.wrongf("%s: takes memory that was freed", g)
	}
	return nil
}

// pair is two engines of this process with a region of a GPU each.
type pair struct {
	server, client *engine.Engine
	mine, theirs   *engine.Region
	peer           *engine.Peer
	kv             *engine.RemoteRegion
}

func newPair(ctx context.Context, here, there *cuda.GPU, size int64) (p *pair, err error) {
	p = &pair{}
	if p.server, err = engine.New(ctx, engine.Options{Name: "server"}); err != nil {
		return nil, err
	}
	if p.client, err = engine.New(ctx, engine.Options{Name: "client"}); err != nil {
		return nil, errors.Join(err, p.server.Close())
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.theirs, err = register(p.server, there, size, engine.RegionOptions{Name: "kv", Grant: memory.PeerRead | memory.PeerWrite}); err != nil {
		return p, err
	}
	if p.mine, err = register(p.client, here, size, engine.RegionOptions{}); err != nil {
		return p, err
	}
	if p.peer, err = p.client.Open(ctx, p.server.Addrs()[0].String()); err != nil {
		return p, err
	}
	p.kv, err = p.peer.Region(ctx, "kv")
	return p, err
}

func register(e *engine.Engine, g *cuda.GPU, size int64, o engine.RegionOptions) (*engine.Region, error) {
	b, err := g.Alloc(size)
	if err != nil {
		return nil, err
	}
	return e.Register(b, o)
}

func (p *pair) close() error { return errors.Join(p.client.Close(), p.server.Close()) }

// do submits ops over one transport and waits.
func (p *pair) do(ctx context.Context, over string, ops ...engine.Op) error {
	b, err := p.peer.Submit(ctx, ops, engine.SubmitOptions{Transport: pathsel.Transport(over)})
	if err != nil {
		return err
	}
	return b.Wait(ctx)
}

// transfers moves GPU memory between engines and compares every byte: first whole, then a million
// slices of pages in disorder.
func transfers(ctx context.Context, c *check) error {
	d, err := open()
	if err != nil {
		return err
	}
	gpus := d.GPUs()
	for i, g := range gpus {
		for _, over := range []string{"tcp", "shm"} {
			other := gpus[(i+1)%len(gpus)]
			if err := transfer(ctx, c, g, other, over); err != nil {
				c.wrongf("%s to %s over %s: %v", g, other, over, err)
			}
		}
	}
	slices := 500_000
	if standIn() {
		slices = 4_000
	}
	for _, over := range []string{"tcp", "shm"} {
		if err := manySlices(ctx, c, gpus[0], over, slices); err != nil {
			c.wrongf("many slices over %s: %v", over, err)
		}
	}
	return d.Close()
}

func transfer(ctx context.Context, c *check, here, there *cuda.GPU, over string) error {
	size := large() + 4099
	p, err := newPair(ctx, here, there, size)
	if err != nil {
		return err
	}
	source := rand.NewChaCha8([32]byte{2})
	got := make([]byte, size)
	var wrote, read time.Duration
	for round := range 3 {
		want := random(source, size)
		if _, err := p.mine.WriteAt(want, 0); err != nil {
			return errors.Join(err, p.close())
		}
		begin := time.Now()
		if err := p.do(ctx, over, engine.Op{Local: p.mine.All(), Remote: p.kv.At(0)}); err != nil {
			return errors.Join(err, p.close())
		}
		wrote = time.Since(begin)
		if _, err := p.theirs.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
			c.wrongf("%s, round %d: what was written is something else (%v)", over, round, err)
		}
		want = random(source, size)
		if _, err := p.theirs.WriteAt(want, 0); err != nil {
			return errors.Join(err, p.close())
		}
		begin = time.Now()
		if err := p.do(ctx, over, engine.ReadOp(p.mine.All(), p.kv.At(0))); err != nil {
			return errors.Join(err, p.close())
		}
		read = time.Since(begin)
		if _, err := p.mine.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
			c.wrongf("%s, round %d: what was read is something else (%v)", over, round, err)
		}
	}
	c.figure(fmt.Sprintf("write of %d MiB from %s to %s over %s", size>>20, here, there, over), float64(size)/wrote.Seconds()/1e9, "GB/s", 0)
	c.figure(fmt.Sprintf("read of %d MiB from %s to %s over %s", size>>20, there, here, over), float64(size)/read.Seconds()/1e9, "GB/s", 0)
	return p.close()
}

// manySlices moves pages to other places and back until that number of slices is done. A shadow on
// the host says what each byte must be.
func manySlices(ctx context.Context, c *check, g *cuda.GPU, over string, slices int) error {
	const page, pages = 4096, 4096
	p, err := newPair(ctx, g, g, page*pages)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(3, 4))
	source := rand.NewChaCha8([32]byte{3})
	want, got := make([]byte, page*pages), make([]byte, page*pages)
	begin, done := time.Now(), 0
	for round := 0; done < slices; round++ {
		data := random(source, page*pages)
		if _, err := p.mine.WriteAt(data, 0); err != nil {
			return errors.Join(err, p.close())
		}
		there, back := rng.Perm(pages), rng.Perm(pages)
		if err := p.do(ctx, over, permute(p, there, page, false)); err != nil {
			return errors.Join(err, p.close())
		}
		if err := p.do(ctx, over, permute(p, back, page, true)); err != nil {
			return errors.Join(err, p.close())
		}
		done += 2 * pages
		// Page i went to page there[i] of the peer, and page back[j] of the peer came to page j.
		far := make([]byte, page*pages)
		for i, to := range there {
			copy(far[to*page:][:page], data[i*page:])
		}
		for i, from := range back {
			copy(want[i*page:][:page], far[from*page:])
		}
		if _, err := p.mine.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
			c.wrongf("%s: bytes differ after round %d (%v)", over, round, err)
			break
		}
	}
	c.figure("slices of 4 KiB verified over "+over, float64(done), "slices", float64(slices))
	c.figure("slices of 4 KiB over "+over, float64(done)/time.Since(begin).Seconds(), "1/s", 0)
	return p.close()
}

func permute(p *pair, to []int, page int64, read bool) engine.Op {
	l := &engine.Layout{Bytes: page, Count: len(to), LocalStride: page, RemoteStride: page}
	for i, at := range to {
		l.LocalPages = append(l.LocalPages, uint32(i))
		l.RemotePages = append(l.RemotePages, uint32(at))
	}
	op := engine.Op{Remote: p.kv.At(0), Layout: l}
	op.Local.Region = p.mine
	if read {
		op.Kind = engine.Read
	}
	return op
}

// tensors takes memory that cupy and torch have allocated in another process, by address.
func tensors(ctx context.Context, c *check) error {
	python, err := exec.LookPath("python3")
	if err != nil {
		return cannot("python3 is not installed")
	}
	d, err := open()
	if err != nil {
		return err
	}
	for _, library := range []string{"cupy", "torch"} {
		err := tensor(ctx, python, library, d.GPUs()[0])
		var unchecked *uncheckedError
		switch {
		case errors.As(err, &unchecked):
			c.cannotf("%v", err)
		case err != nil:
			c.wrongf("%s: %v", library, err)
		}
	}
	return d.Close()
}

// shared is what the Python program says of its tensor.
type shared struct {
	Missing string `json:"missing"` // a library that is not installed
	Handle  string `json:"handle"`  // hexadecimal, of the allocation
	Offset  int64  `json:"offset"`
	Bytes   int64  `json:"bytes"`
}

// tensor reads a tensor whose byte i is i*7 mod 251, and writes it so that byte i is i*5 mod 249,
// which the Python program checks.
func tensor(ctx context.Context, python, library string, g *cuda.GPU) error {
	cmd := exec.CommandContext(ctx, python, beside("tensors.py"), library)
	cmd.Stderr = os.Stdout
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewReader(out)
	work := func() error {
		text, err := lines.ReadString('\n')
		if err != nil {
			return fmt.Errorf("python3 says nothing: %w", err)
		}
		var x shared
		if err := json.Unmarshal([]byte(text), &x); err != nil {
			return err
		}
		if x.Missing != "" {
			return cannot("python3 has no %s", x.Missing)
		}
		if err := readTensor(g, x); err != nil {
			return err
		}
		if _, err := io.WriteString(in, "written\n"); err != nil {
			return err
		}
		if text, err = lines.ReadString('\n'); err != nil {
			return fmt.Errorf("python3 does not say what is in the tensor: %w", err)
		}
		if text = strings.TrimSpace(text); text != "same" {
			return fmt.Errorf("the tensor after our write: %q", text)
		}
		fmt.Fprintf(os.Stdout, "%s: %d bytes read and written by address\n", library, x.Bytes)
		return nil
	}
	err = work()
	return errors.Join(err, in.Close(), cmd.Wait())
}

func readTensor(g *cuda.GPU, x shared) error {
	handle, err := hex.DecodeString(x.Handle)
	if err != nil {
		return err
	}
	base, err := openMemory(0, handle)
	if err != nil {
		return err
	}
	b, err := g.Foreign(base+uintptr(x.Offset), x.Bytes)
	if err != nil {
		return errors.Join(err, closeMemory(0, base))
	}
	data := make([]byte, x.Bytes)
	_, err = b.ReadAt(data, 0)
	for i := range data {
		if err == nil && data[i] != byte(i*7%251) {
			err = fmt.Errorf("byte %d of the tensor is %d, want %d", i, data[i], i*7%251)
		}
		data[i] = byte(i * 5 % 249)
	}
	if err == nil {
		_, err = b.WriteAt(data, 0)
	}
	return errors.Join(err, b.Free(), closeMemory(0, base))
}
