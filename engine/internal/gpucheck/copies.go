//go:build cgo && linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	mem "github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/probe"
)

// copyLoop is the C program, which answers rates.
type copyLoop struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startLoop(ctx context.Context, bytes int64) (*copyLoop, error) {
	l := &copyLoop{cmd: exec.CommandContext(ctx, beside("copyloop"), "0", strconv.FormatInt(bytes, 10))}
	l.cmd.Stderr = os.Stdout
	var err error
	if l.in, err = l.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	l.out = bufio.NewReader(out)
	return l, l.cmd.Start()
}

// rate is in bytes per second: of h2d, d2h or both, with that number of copies queued at a time.
func (l *copyLoop) rate(mode string, size int64, queued, node int, turn time.Duration) (float64, error) {
	if _, err := fmt.Fprintf(l.in, "%s %d %d %d %d\n", mode, size, queued, node, turn.Milliseconds()); err != nil {
		return 0, fmt.Errorf("copyloop: %w", err)
	}
	line, err := l.out.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("copyloop gave no rate: %w", err)
	}
	return strconv.ParseFloat(strings.TrimSpace(line), 64)
}

func (l *copyLoop) close() error { return errors.Join(l.in.Close(), l.cmd.Wait()) }

// turnTime is how long each side copies before it is the other's turn.
func turnTime() time.Duration {
	if standIn() {
		return 5 * time.Millisecond
	}
	return 200 * time.Millisecond
}

// rounds is how often both sides have their turn; the median of the ratios counts.
func rounds() int {
	if standIn() {
		return 2
	}
	return 5
}

func median(x []float64) float64 {
	slices.Sort(x)
	if len(x)%2 == 0 {
		return (x[len(x)/2-1] + x[len(x)/2]) / 2
	}
	return x[len(x)/2]
}

// staging copies between pinned buffers and the GPU as transports do, one copy at a time as
// long as a request is, in turn with a C program that does the same in one call.
func staging(ctx context.Context, c *check) (err error) {
	d, err := open()
	if err != nil {
		return err
	}
	g := d.GPUs()[0]
	const size = 64 << 20
	loop, err := startLoop(ctx, size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, loop.close(), d.Close()) }()
	b, err := g.Alloc(size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(b.Free(), err) }()
	device := (*mem.Block)(b).Device()
	pool, err := mem.PoolOf(device, mem.ForRequests)
	if err != nil {
		return err
	}
	pinned := pool.Region().Bytes(0, pool.Region().Size())
	fmt.Fprintf(os.Stdout, "%d bytes of pinned memory\n", len(pinned))
	for _, bytes := range []int64{64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20} {
		bytes = min(bytes, int64(len(pinned)))
		for _, mode := range []string{"h2d", "d2h"} {
			var ratios, rates []float64
			for range rounds() {
				theirs, err := loop.rate(mode, bytes, 1, -1, turnTime())
				if err != nil {
					return err
				}
				ours, err := stagingRate(device, pinned[:bytes], mode == "d2h")
				if err != nil {
					return err
				}
				rates, ratios = append(rates, ours), append(ratios, ours/theirs)
			}
			goal := 0.0
			if bytes >= 1<<20 {
				goal = 0.95
			}
			name := fmt.Sprintf("%s of %d KiB", mode, bytes>>10)
			c.figure(name+", staging", median(rates)/1e9, "GB/s", 0)
			c.figure(name+", staging beside the C loop", median(ratios), "times", goal)
		}
	}
	return nil
}

// stagingRate copies for a turn.
func stagingRate(device mem.DeviceMemory, pinned []byte, toHost bool) (bytesPerSec float64, err error) {
	var pieces []mem.DevicePiece
	for at := 0; at < len(pinned); at += mem.PieceBytes {
		pieces = append(pieces, mem.DevicePiece{Offset: int64(at), Host: pinned[at:min(at+mem.PieceBytes, len(pinned))]})
	}
	done := make(chan error, 1)
	moved := 0
	begin := time.Now()
	for time.Since(begin) < turnTime() {
		device.Copy(pieces, toHost, func(err error) { done <- err })
		if err := <-done; err != nil {
			return 0, err
		}
		moved += len(pinned)
	}
	return float64(moved) / time.Since(begin).Seconds(), nil
}

// probeLocal measures with the program, in turn with the C loop at the sizes and nodes of its
// report. Nothing is compared whose pair the program could not measure.
func probeLocal(ctx context.Context, c *check) (err error) {
	args := slices.Clip([]string{"probe", "local", "--pairs", "gpu", "--size", "16MiB", "-o", "json"})
	if standIn() {
		args = append(args, "--duration", "20ms", "--warmup", "5ms", "--max-samples", "5", "--size", "1MiB")
		args = slices.Clip(args)
	}
	ours := map[string][]float64{}
	theirs := map[string][]float64{}
	const size = 16 << 20
	loop, err := startLoop(ctx, 4*size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, loop.close()) }()
	for i := range 4 {
		args := args
		if i%2 == 1 {
			args = append(args, "--bidir")
		}
		data, err := c.topoctl(ctx, args...)
		if err != nil {
			return err
		}
		r, err := probe.Decode(data)
		if err != nil {
			return err
		}
		for i := range r.Results {
			x := &r.Results[i]
			mode, node, ok := loopMode(&x.Pair)
			if !ok {
				continue
			}
			if len(x.Bandwidth) == 0 {
				c.cannotf("%s: %s %v %s", x.ID, x.Verdict, x.Reasons, x.Error)
				continue
			}
			bw := x.Bandwidth[len(x.Bandwidth)-1]
			rate, err := loop.rate(mode, bw.SizeBytes, 16, node, turnTime())
			if err != nil {
				return err
			}
			ours[x.ID] = append(ours[x.ID], float64(bw.MedianBytesPerSec))
			theirs[x.ID] = append(theirs[x.ID], rate)
		}
	}
	if len(ours) == 0 {
		return cannot("topoctl probe local measured no pair of the first GPU and host memory")
	}
	for _, id := range slices.Sorted(maps.Keys(ours)) {
		a, b := median(ours[id]), median(theirs[id])
		c.figure(id, a/1e9, "GB/s", 0)
		c.figure(id+" beside the C loop", a/b, "times", 0.97)
		if a > 1.03*b && !standIn() {
			c.wrongf("%s: %.4g times the C loop: one of the two measures something else", id, a/b)
		}
	}
	return nil
}

// loopMode is how the C loop does a pair of the first GPU and memory of a NUMA node.
func loopMode(p *probe.Pair) (mode string, node int, ok bool) {
	const gpu = "gpu:0"
	host := p.From.Node
	switch {
	case p.To.Node == gpu:
		mode = "h2d"
	case p.From.Node == gpu:
		mode, host = "d2h", p.To.Node
	default:
		return "", 0, false
	}
	if p.Variant == probe.VariantBothWays {
		if mode == "d2h" {
			return "", 0, false // the loop measures one of the two directions
		}
		mode = "both"
	}
	if _, err := fmt.Sscanf(string(host), "numa:%d", &node); err != nil {
		return "", 0, false
	}
	return mode, node, true
}
