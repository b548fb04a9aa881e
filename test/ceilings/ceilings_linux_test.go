package ceilings

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/local"
)

const (
	rounds    = 9
	turn      = 600 * time.Millisecond
	opBytes   = 1 << 20
	cacheSets = 4
	leastSet  = 256 << 20
)

// ceiling is the C program.
type ceiling struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
}

func startCeiling(t *testing.T, set int64) *ceiling {
	t.Helper()
	if os.Getenv("TOPOCTL_PROBE") != "alone" {
		t.Skip("TOPOCTL_PROBE is not \"alone\": figures need the machine for themselves")
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("gcc is not installed: there is nothing to compare with")
	}
	program := filepath.Join(t.TempDir(), "ceiling")
	if out, err := exec.Command(gcc, "-O3", "-march=native", "-o", program, "testdata/ceiling.c", "-lpthread").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	c := exec.Command(program, strconv.Itoa(runtime.NumCPU()), strconv.FormatInt(set, 10), strconv.Itoa(opBytes))
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	})
	return &ceiling{t: t, in: in, out: bufio.NewReader(out)}
}

// rate runs a command for a turn and gives bytes per second.
func (c *ceiling) rate(command string) float64 {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.in, "%s %d\n", command, turn.Milliseconds()); err != nil {
		c.t.Fatal(err)
	}
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	rate, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
	if err != nil || rate <= 0 {
		c.t.Fatalf("%s: %q, %v", command, line, err)
	}
	return rate
}

// ours measures a pair for a turn.
func ours(t *testing.T, p *local.Prober, pair probe.Pair) float64 {
	t.Helper()
	spec := probe.Spec{Warmup: turn / 10, SampleTime: turn / 10, MinSamples: 9, MaxSamples: 9, SizesBytes: []int64{opBytes}, PairTime: 10 * turn}
	m := p.Round(context.Background(), []probe.Pair{pair}, spec, nil)[0]
	if m.Err != nil || m.Waived != "" || len(m.Bandwidth) != 1 {
		t.Fatalf("%s: %v, waived %q, %+v", pair.ID, m.Err, m.Waived, m.Bandwidth)
	}
	return float64(m.Bandwidth[0].Bytes) / (float64(m.Bandwidth[0].DurationNS) / 1e9)
}

func prober(t *testing.T) (*local.Prober, *topo.Topology) {
	t.Helper()
	top, err := discover.Discover(t.Context(), discover.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := local.New(local.Options{Topology: top})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, top
}

// compare takes turns, forwards and backwards, and gives the median over the rounds of
// ours as a part of the best of theirs. A round in which somebody else was busy changes
// both.
func compare(t *testing.T, name string, mine func() float64, theirs map[string]func() float64) float64 {
	t.Helper()
	const own = "ours"
	steps := slices.Sorted(maps.Keys(theirs))
	theirs[own] = mine
	steps = append(steps, own)
	all := map[string][]float64{}
	for range rounds {
		for _, s := range steps {
			all[s] = append(all[s], theirs[s]())
		}
		slices.Reverse(steps)
	}
	var ratios []float64
	for k := range rounds {
		best := 0.0
		for _, s := range steps {
			if s != own {
				best = max(best, all[s][k])
			}
		}
		ratios = append(ratios, all[own][k]/best)
	}
	for s, rates := range all {
		slices.Sort(rates)
		t.Logf("%s: %s %.2f GB/s (%.2f to %.2f)", name, s, rates[rounds/2]/1e9, rates[0]/1e9, rates[rounds-1]/1e9)
	}
	slices.Sort(ratios)
	t.Logf("%s: ratio %.3f (%.3f to %.3f)", name, ratios[rounds/2], ratios[0], ratios[rounds-1])
	return ratios[rounds/2]
}

// Memory bandwidth is within 15 % of what C finds in turn.
func TestMemory(t *testing.T) {
	set := int64(leastSet)
	if size, ok := lastLevel(); ok {
		set = max(set, cacheSets*size)
	}
	c := startCeiling(t, set)
	p, top := prober(t)
	if len(top.NUMANodes) != 1 {
		t.Skipf("%d NUMA nodes: the C program is for one", len(top.NUMANodes))
	}
	end := probe.End{Host: "h", Node: top.NUMANodes[0].ID, Name: "cpu:0", Location: "cpu:0"}
	for variant, commands := range map[string][]string{probe.VariantRead: {"read"}, probe.VariantCopy: {"copy", "stream"}} {
		pair := probe.Pair{ID: variant, Kind: probe.Memory, Transport: probe.CPU, Variant: variant, From: end, To: end}
		theirs := map[string]func() float64{}
		for _, command := range commands {
			theirs["C "+command] = func() float64 { return c.rate(command) }
		}
		if ratio := compare(t, variant, func() float64 { return ours(t, p, pair) }, theirs); ratio < 0.85 || ratio > 1.15 {
			t.Errorf("%s: %.3f of C", variant, ratio)
		}
	}
}

// lastLevel is the size of the last level of caches of CPU 0.
func lastLevel() (int64, bool) {
	text, err := os.ReadFile("/sys/devices/system/cpu/cpu0/cache/index3/size")
	if err != nil {
		return 0, false
	}
	kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(text)), "K"), 10, 40)
	return kib << 10, err == nil
}

// TCP over loopback is within 10 % of raw sockets in turn.
func TestTCP(t *testing.T) {
	c := startCeiling(t, leastSet)
	p, _ := prober(t)
	end := probe.End{Host: "h", Node: "net:lo", Name: "lo"}
	pair := probe.Pair{ID: "tcp", Kind: probe.Port, Transport: probe.TCP, From: end, To: end}
	theirs := map[string]func() float64{"C raw socket": func() float64 { return c.rate("tcp") }}
	if ratio := compare(t, "tcp", func() float64 { return ours(t, p, pair) }, theirs); ratio < 0.9 || ratio > 1.1 {
		t.Errorf("tcp: %.3f of a raw socket", ratio)
	}
}
