package lanes

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
	"github.com/topoctl/topoctl/probe/measure"
)

const (
	rounds    = 20
	turn      = 180 * time.Millisecond
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

// samples is what a turn of ours is cut into, after a warm-up.
const samples = 6

// ours measures a pair for a turn.
func ours(t *testing.T, p *measure.LocalProber, pair probe.Pair) float64 {
	t.Helper()
	warmup := turn / samples
	if pair.Kind == probe.Port { // its connection is new, the windows of which grow at first
		warmup = probe.DefaultSpec().Warmup
	}
	return moved(t, p, pair, probe.Spec{Warmup: warmup, SampleTime: turn / samples, MinSamples: samples, MaxSamples: samples, PairTime: 10 * turn})
}

// prepare measures a pair once, without haste: memory is there afterwards.
func prepare(t *testing.T, p *measure.LocalProber, pair probe.Pair) {
	t.Helper()
	moved(t, p, pair, probe.Spec{SampleTime: turn, MinSamples: 1, MaxSamples: 1, PairTime: time.Minute})
}

func moved(t *testing.T, p *measure.LocalProber, pair probe.Pair, spec probe.Spec) float64 {
	t.Helper()
	spec.SizesBytes = []int64{opBytes}
	m := p.Round(context.Background(), []probe.Pair{pair}, spec, nil)[0]
	if m.Err != nil || m.Waived != "" || len(m.Bandwidth) != 1 || m.Bandwidth[0].DurationNS == 0 {
		t.Fatalf("%s: %v, waived %q, %+v", pair.ID, m.Err, m.Waived, m.Bandwidth)
	}
	return float64(m.Bandwidth[0].Bytes) / (float64(m.Bandwidth[0].DurationNS) / 1e9)
}

func prober(t *testing.T) (*measure.LocalProber, *topo.Topology) {
	t.Helper()
	top, err := discover.Discover(t.Context(), discover.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := measure.Local(top, measure.LocalOptions{})
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
// ours as a part of the best of theirs. Turns are short, so that what others do at the time
// is mostly the same for all of a round.
func compare(t *testing.T, name string, mine func() float64, theirs map[string]func() float64) float64 {
	t.Helper()
	const own = "ours"
	steps := slices.Sorted(maps.Keys(theirs))
	theirs[own] = mine
	steps = append(steps, own)
	all := map[string][]float64{}
	var ratios []float64
	for range rounds {
		now, best := map[string]float64{}, 0.0
		for _, s := range steps {
			now[s] = theirs[s]()
			all[s] = append(all[s], now[s])
			if s != own {
				best = max(best, now[s])
			}
		}
		ratios = append(ratios, now[own]/best)
		slices.Reverse(steps)
	}
	for _, s := range slices.Sorted(maps.Keys(all)) {
		t.Logf("%s: %s: %s GB/s", name, s, quartiles(all[s], 1e9))
	}
	t.Logf("%s: ratio %s", name, quartiles(ratios, 1))
	return ratios[len(ratios)/2]
}

// quartiles sorts values and writes the median and the quartiles.
func quartiles(v []float64, unit float64) string {
	slices.Sort(v)
	n := len(v)
	return fmt.Sprintf("%.3f (quartiles %.3f and %.3f)", v[n/2]/unit, v[n/4]/unit, v[n-1-n/4]/unit)
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
		c.rate(commands[0]) // makes its memory
		pair := probe.Pair{ID: variant, Kind: probe.Memory, Transport: probe.CPU, Variant: variant, From: end, To: end}
		prepare(t, p, pair)
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
	c.rate("tcp")
	prepare(t, p, pair)
	theirs := map[string]func() float64{"C raw socket": func() float64 { return c.rate("tcp") }}
	if ratio := compare(t, "tcp", func() float64 { return ours(t, p, pair) }, theirs); ratio < 0.9 || ratio > 1.1 {
		t.Errorf("tcp: %.3f of a raw socket", ratio)
	}
}
