//go:build cgo && linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/nvml"
	"github.com/topoctl/topoctl/engine/memory/cuda"
)

// load compares what the dashboard reads from NVML with what nvidia-smi says at the same time,
// while the C loop copies.
func load(ctx context.Context, c *check) (err error) {
	const size = 64 << 20
	loop, err := startLoop(ctx, size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, loop.close()) }()
	busy := make(chan error, 1)
	go func() {
		_, err := loop.rate("both", 16<<20, 8, -1, 10*turnTime())
		busy <- err
	}()
	defer func() { err = errors.Join(err, <-busy) }()
	time.Sleep(turnTime() * 5) // counters are of the last sixth of a second to a second
	var s nvml.Source
	defer func() { err = errors.Join(err, s.Close()) }()
	loads, notes, err := s.Load(ctx)
	if err != nil {
		return cannot("NVML: %v", err)
	}
	for _, text := range notes {
		fmt.Fprintln(os.Stdout, "note:", text)
	}
	if len(loads) == 0 {
		return cannot("NVML shows no GPU")
	}
	for _, x := range loads {
		compareLoad(ctx, c, x)
	}
	return frame(ctx, c)
}

func compareLoad(ctx context.Context, c *check, x counters.GPULoad) {
	if x.MemoryUsedBytes == nil || x.UtilizationPercent == nil {
		c.wrongf("%s: NVML tells no memory or no utilization", x.UUID)
		return
	}
	if x.PCIeReceivedBytesPerSec == nil || x.PCIeSentBytesPerSec == nil {
		c.cannotf("%s: NVML tells no PCIe rate", x.UUID)
	} else {
		c.figure("PCIe rate received under load", float64(*x.PCIeReceivedBytesPerSec)/1e9, "GB/s", 0.1)
		c.figure("PCIe rate sent under load", float64(*x.PCIeSentBytesPerSec)/1e9, "GB/s", 0.1)
	}
	out, err := smi(ctx, c, "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id="+x.UUID)
	if err != nil {
		c.cannotf("%v", err)
		return
	}
	theirs, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		c.wrongf("nvidia-smi: memory.used: %v", err)
		return
	}
	if ours := *x.MemoryUsedBytes >> 20; ours-theirs > 64 || theirs-ours > 64 {
		c.wrongf("%s: %d MiB of memory are used, nvidia-smi says %d", x.UUID, ours, theirs)
	}
}

// frame leaves a frame of the dashboard, for a person to look at.
func frame(ctx context.Context, c *check) error {
	out, err := c.topoctl(ctx, "tui", "--once", "--size", "160x45")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "%s\n", out)
	return os.WriteFile(filepath.Join(c.out, "dashboard.txt"), out, 0o644)
}

// visible opens the driver in processes that may see all GPUs, none, or the first by its UUID.
func visible(ctx context.Context, c *check) error {
	if text := os.Getenv(envVisible); text != "" {
		return reportVisible()
	}
	d, err := open()
	if err != nil {
		return err
	}
	uuid := d.GPUs()[0].Info().UUID
	if err := d.Close(); err != nil {
		return err
	}
	for _, x := range []struct{ value, want string }{{"", "none"}, {"0", uuid}, {uuid, uuid}} {
		out, err := c.run(ctx, []string{"CUDA_VISIBLE_DEVICES=" + x.value, envVisible + "=1", envNotes + "="}, beside("gpucheck"), "-part", "visible", "-out", c.out)
		if err != nil {
			return err
		}
		if standIn() && x.value == "" {
			c.cannotf("CUDA_VISIBLE_DEVICES=: the stand-in does not read it")
			continue
		}
		first, _, _ := strings.Cut(lastLine(string(out)), " ")
		c.equal(fmt.Sprintf("CUDA_VISIBLE_DEVICES=%q", x.value), first, x.want)
	}
	return nil
}

const envVisible = "TOPOCTL_GPUCHECK_VISIBLE"

// reportVisible prints the UUIDs that this process sees, or "none" and why.
func reportVisible() error {
	d, err := cuda.Open(cuda.Options{})
	if errors.Is(err, cuda.ErrUnavailable) {
		fmt.Fprintln(os.Stdout, "none", err)
		return nil
	}
	if err != nil {
		return err
	}
	var ids []string
	for _, g := range d.GPUs() {
		ids = append(ids, g.Info().UUID)
	}
	fmt.Fprintln(os.Stdout, strings.Join(ids, " "))
	return d.Close()
}
