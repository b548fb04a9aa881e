package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/testkit/schematest"
)

const testMemory = 4 << 20

// serve is the other end, in this process.
func serve(t *testing.T, grant memory.Grant) (address string, r *engine.Region) {
	t.Helper()
	e, err := engine.New(t.Context(), engine.Options{Name: "served"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	if r, err = e.Alloc(testMemory, engine.RegionOptions{Name: "bench", Grant: grant}); err != nil {
		t.Fatal(err)
	}
	return e.Addrs()[0].String(), r
}

func quick(address string) Options {
	return Options{Peer: address, Region: "bench", Ops: []engine.OpKind{engine.Write, engine.Read}, Sizes: []int64{4096}, Batch: 16, Threads: 1, InFlight: 2,
		Transports: []string{"tcp"}, Duration: 60 * time.Millisecond, Warmup: 10 * time.Millisecond,
		Memory: testMemory, Seed: 5, Tool: topo.Tool{Name: "topoctl", Version: "test"}, Now: func() time.Time { return time.Unix(0, 0) }}
}

// runUntilMoved runs for longer where a busy machine let nothing move.
func runUntilMoved(t *testing.T, o Options) (*Report, error) {
	t.Helper()
	for ; ; o.Duration *= 4 {
		r, err := Run(t.Context(), o)
		if err != nil || o.Duration > 10*time.Second || !slices.ContainsFunc(r.Results, func(x Result) bool { return x.Ops == 0 }) {
			return r, err
		}
	}
}

func settled(t *testing.T, before int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if runtime.NumGoroutine() <= before {
			return
		}
	}
	stacks := make([]byte, 64<<10)
	t.Errorf("%d goroutines, before %d:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
}

// A run measures what it was asked for, with ceilings, and leaves nothing behind.
func TestRun(t *testing.T) {
	address, _ := serve(t, memory.PeerRead|memory.PeerWrite)
	before := runtime.NumGoroutine()
	o := quick(address)
	o.Sizes, o.Transports = []int64{1000, 64 << 10}, []string{"tcp", Auto}
	o.Batch, o.Duration = 0, 30*time.Millisecond
	told := 0
	o.Progress = func(Progress) { told++ }
	if o.batchFor(64<<10) != 128 {
		t.Errorf("batch of 64 KiB: %d", o.batchFor(64<<10))
	}
	o.Batch = 8
	r, err := runUntilMoved(t, o)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := schematest.Open(t, schemaFile).Validate(data); err != nil {
		t.Error(err)
	}
	copies := 2
	if runtime.GOMAXPROCS(0) > 1 {
		copies = 4
	}
	if len(r.Results) != 8 || len(r.Ceilings) != 4*(1+copies) || !r.Complete || !r.Results[0].Complete || r.Bad() || !r.Peer.SameHost || r.Memory.WorkingSetBytes != 2*testMemory {
		t.Errorf("%d results, %d ceilings: %s", len(r.Results), len(r.Ceilings), data)
	}
	for _, x := range r.Results {
		if x.BytesPerSec <= 0 || x.OpsPerSec <= 0 || x.Latency.N < 1 || x.Bytes != x.Ops*x.SizeBytes || len(x.Lanes) == 0 || x.OfRawSocket == nil || x.OfMemcpy == nil ||
			x.LocalCPUSecondsPerGB == nil || x.CPUSecondsPerGB != nil || x.Verified != nil || x.Checksum == "" || len(x.RoundsBytesPerSec) != 1 {
			t.Errorf("%+v", x)
		}
		carried := int64(0)
		for _, l := range x.Lanes {
			carried += l.Bytes
			if x.Transport == "tcp" && l.Transport != "tcp" {
				t.Errorf("tcp was asked for, %s carried %d bytes", l.Transport, l.Bytes)
			}
		}
		if carried != x.Bytes {
			t.Errorf("%s %d %s: %d bytes, the lanes carried %d", x.Op, x.SizeBytes, x.Transport, x.Bytes, carried)
		}
	}
	for _, c := range r.Ceilings {
		name := cmp.Or(c.CongestionControl, new(string))
		if c.Kind == RawSocket && runtime.GOOS == "linux" && *name != "cubic" && *name != "reno" {
			t.Errorf("congestion control %q, want cubic, or reno, which is always allowed", *name)
		}
	}
	settled(t, before)
}

// The engine that measures is shown while it does, and nothing of what verifies. A show that fails ends the run.
func TestShow(t *testing.T) {
	address, _ := serve(t, memory.PeerRead|memory.PeerWrite)
	o := quick(address)
	o.Check = true
	var last engine.Stats
	o.Show = func(e *engine.Engine) (func(), error) { return func() { last = e.Stats() }, nil }
	r, err := runUntilMoved(t, o)
	if err != nil {
		t.Fatal(err)
	}
	ops, bytes := int64(0), int64(0)
	for i := range r.Results {
		ops += r.Results[i].Ops
	}
	for i := range last.Lanes {
		bytes += last.Lanes[i].Bytes
	}
	if len(last.Peers) != 1 || last.Peers[0].Name != address || !strings.HasPrefix(last.Name, "bench-") || last.Batches <= 0 || bytes < ops*4096 || last.Failed != 0 {
		t.Errorf("%d bytes of %d ops: %+v", bytes, ops, last)
	}
	o.Show = func(*engine.Engine) (func(), error) { return nil, errors.New("no room") }
	if r, err := Run(t.Context(), o); r != nil || err == nil || err.Error() != "no room" {
		t.Errorf("%v, %v", r, err)
	}
}

// Every byte is verified.
func TestCheck(t *testing.T) {
	address, _ := serve(t, memory.PeerRead|memory.PeerWrite)
	o := quick(address)
	o.Check, o.Threads, o.Sizes = true, 2, []int64{4096, 1000}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range r.Results {
		if v := x.Verified; v == nil || v.Bytes != x.Bytes || v.MismatchedBytes != 0 || v.First != nil || x.Error != nil {
			t.Errorf("%s of %d bytes: %+v of %d, %v", x.Op, x.SizeBytes, v, x.Bytes, x.Error)
		}
	}
	if r.Bad() {
		t.Error("bad")
	}
}

// A byte that somebody else writes is found. The writer of such bytes may get no processor while
// an op is measured, so it is tried until it has found one in each op.
func TestCheckFinds(t *testing.T) {
	address, region := serve(t, memory.PeerRead|memory.PeerWrite)
	o := quick(address)
	o.Check, o.Threads, o.Sizes = true, 2, []int64{4096, 1000}
	var over atomic.Bool
	var spoiler sync.WaitGroup
	spoiler.Go(func() {
		for b := region.Bytes(); !over.Load(); runtime.Gosched() {
			for i := 0; i < len(b); i += 512 {
				b[i]++
			}
		}
	})
	defer spoiler.Wait()
	defer over.Store(true)
	found := map[string]bool{}
	for try, all := 0, false; !all; try++ {
		if try == 100 {
			t.Fatalf("found in %v", found)
		}
		r, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		all = true
		for _, x := range r.Results {
			v, name := x.Verified, fmt.Sprint(x.Op, " of ", x.SizeBytes)
			if v == nil || v.Bytes != x.Bytes || (v.First != nil) != (v.MismatchedBytes > 0) || x.Error != nil {
				t.Fatalf("%s: %+v of %d, %v", name, v, x.Bytes, x.Error)
			}
			found[name] = found[name] || v.MismatchedBytes > 0
			if v.MismatchedBytes > 0 && !r.Bad() {
				t.Errorf("%s: %d bytes differ, and the report is not bad", name, v.MismatchedBytes)
			}
			all = all && found[name]
		}
	}
}

// A lane that is taken out of use costs no op where there is another, and is
// used again.
func TestFault(t *testing.T) {
	address, _ := serve(t, memory.PeerRead|memory.PeerWrite)
	o := quick(address)
	o.Ops, o.Transports, o.Duration = []engine.OpKind{engine.Write}, []string{Auto}, 400*time.Millisecond
	o.Fault = &FaultPlan{Lane: "nowhere"}
	_, err := Run(t.Context(), o)
	var unknown *UnknownLaneError
	if !errors.As(err, &unknown) || len(unknown.Lanes) == 0 {
		t.Fatalf("an unknown lane: %v", err)
	}
	if runtime.GOOS != "linux" {
		t.Skip("shared memory is for Linux")
	}
	for ; ; o.Duration *= 4 { // more on a machine that stood still for that long
		at := o.Duration / 4
		o.Fault = &FaultPlan{Lane: "shm", At: at, For: at}
		r, err := Run(t.Context(), o)
		if err != nil || r.Bad() || len(r.Results) != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		x := r.Results[0]
		if f := x.Fault; f != nil && f.Lane == "shm" && f.AtNS >= at.Nanoseconds() && f.ResumedAtNS != nil && f.LongestGapNS != nil && f.AfterBytesPerSec != nil && len(x.Lanes) == 2 && x.Fallbacks > 0 {
			break
		}
		if o.Duration > 5*time.Second {
			t.Fatalf("%+v", x)
		}
	}
}

func TestLanes(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("shared memory is for Linux")
	}
	address, _ := serve(t, memory.PeerRead|memory.PeerWrite)
	o := quick(address)
	o.Ops, o.Transports, o.Lanes = []engine.OpKind{engine.Write}, []string{Auto}, []string{"shm"}
	r, err := runUntilMoved(t, o)
	if err != nil || len(r.Results[0].Lanes) != 1 || r.Results[0].Lanes[0].Lane != "shm" {
		t.Errorf("%+v, %v", r, err)
	}
	if x := r.Results[0]; x.CongestionControl != nil || x.OfRawSocket == nil {
		t.Errorf("%+v", x)
	}
	if c := r.Ceilings[0]; c.Kind != RawSocket || c.Reason != nil || c.BytesPerSec == nil {
		t.Errorf("%+v", c)
	}
}

// onceMoving shows an engine to what is done when it has moved something.
func onceMoving(do func()) func(*engine.Engine) (func(), error) {
	return func(e *engine.Engine) (func(), error) {
		var ending sync.WaitGroup
		ending.Go(func() {
			for e.Stats().Slices < 100 {
				time.Sleep(time.Millisecond)
			}
			do()
		})
		return ending.Wait, nil
	}
}

// What is measured when the user stops it is kept.
func TestInterrupted(t *testing.T) {
	address, _ := serve(t, memory.PeerRead|memory.PeerWrite)
	before := runtime.NumGoroutine()
	o := quick(address)
	o.Duration, o.Warmup = time.Minute, 0
	ctx, stop := context.WithCancel(t.Context())
	o.Show = onceMoving(stop)
	r, err := Run(ctx, o)
	if !errors.Is(err, context.Canceled) || r == nil || r.Complete || len(r.Results) != 1 || r.Results[0].Bytes == 0 || r.Results[0].Complete || r.Results[0].Error != nil {
		t.Errorf("%+v, %v", r, err)
	}
	settled(t, before)
}

// A run whose peer goes away stops, says where, and keeps what it has measured, as partial.
func TestPeerGone(t *testing.T) {
	before := runtime.NumGoroutine()
	served, err := engine.New(t.Context(), engine.Options{Name: "served"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := served.Alloc(testMemory, engine.RegionOptions{Name: "bench", Grant: memory.PeerRead | memory.PeerWrite}); err != nil {
		t.Fatal(err)
	}
	o := quick(served.Addrs()[0].String())
	o.Duration, o.Warmup = time.Minute, 0
	o.Show = onceMoving(func() {
		if err := served.Close(); err != nil {
			t.Error(err)
		}
	})
	r, err := Run(t.Context(), o)
	var gone *PeerGoneError
	if !errors.As(err, &gone) || gone.During != "write 4 KiB, tcp" || !errors.Is(err, engine.ErrPeerLost) ||
		!strings.HasSuffix(gone.Error(), "was lost during write 4 KiB, tcp: it closed the session") {
		t.Errorf("%v", err)
	}
	if r == nil || r.Complete || len(r.Results) != 1 || r.Results[0].Complete || r.Results[0].Bytes == 0 || r.Results[0].Error == nil || *r.Results[0].Error != gone.Error() {
		t.Errorf("%+v", r)
	}
	settled(t, before)
}

// Silence is not the end of the peer's process: a link may be down.
func TestPeerGoneHints(t *testing.T) {
	for want, err := range map[string]error{
		"the agent may still run: check the links":  fmt.Errorf("%w: %w: nothing was received for 10s", engine.ErrPeerLost, engine.ErrUnreachable),
		"see why the agent on the other host ended": engine.ErrPeerRestarted,
		"see whether the agent":                     fmt.Errorf("%w: %w", engine.ErrPeerLost, syscall.ECONNREFUSED),
		"see the log":                               fmt.Errorf("%w: %w", engine.ErrPeerLost, engine.ErrPeerEnded),
	} {
		if got := (&PeerGoneError{Err: err}).Hint(); !strings.HasPrefix(got, want) {
			t.Errorf("%v: %s", err, got)
		}
	}
}

// What does not fit, and a peer or a region that is not there, is in the scripts of the command.
func TestRunRefuses(t *testing.T) {
	address, _ := serve(t, memory.PeerRead)
	before := runtime.NumGoroutine()
	for want, change := range map[string]func(*Options){
		`may not be written`: func(*Options) {},
		`verifying needs to`: func(o *Options) { o.Ops, o.Check = []engine.OpKind{engine.Read}, true },
	} {
		o := quick(address)
		change(&o)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		r, err := Run(ctx, o)
		stop()
		if r != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", want, r, err)
		}
	}
	settled(t, before)
}

// A peer that accepts and says nothing is not waited for longer than the user
// wants.
func TestRunMutePeer(t *testing.T) {
	before := runtime.NumGoroutine()
	ln, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
	if err != nil {
		t.Fatal(err)
	}
	o := quick(ln.Addr().String())
	o.Timeout = 100 * time.Millisecond
	report, err := Run(t.Context(), o)
	if report != nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "has not answered in 100ms") {
		t.Errorf("%v, %v", report, err)
	}
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	settled(t, before)
}

// swallow passes the first connections on to an address, and takes the others without a word.
func swallow(t *testing.T, to string, first int) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var accepting, running sync.WaitGroup
	var open []net.Conn
	accepting.Go(func() {
		for n := 0; ; n++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			open = append(open, c)
			if n >= first {
				continue
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				t.Error(err)
				return
			}
			open = append(open, far)
			running.Go(func() { _, _ = io.Copy(far, c) })
			running.Go(func() { _, _ = io.Copy(c, far) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		accepting.Wait()
		for _, c := range open {
			_ = c.Close()
		}
		running.Wait()
	})
	return ln.Addr().String()
}

// A peer that answers and whose data connections lead nowhere: the time is for those, too, and for all measurements
// together.
func TestRunPeerThatLeadsNowhere(t *testing.T) {
	address, _ := serve(t, memory.PeerRead|memory.PeerWrite)
	for name, engines := range map[string]int{"measured": 1, "verified": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			o := quick(swallow(t, address, engines))
			o.Ops, o.Check, o.Timeout, o.Sizes = []engine.OpKind{engine.Read, engine.Write}, engines > 1, 400*time.Millisecond, []int64{4096, 8192}
			began := time.Now()
			report, err := Run(t.Context(), o)
			if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "has not answered in 400ms") || took > 10*time.Second {
				t.Errorf("%v after %s: %+v", err, took, report)
			}
		})
	}
}

// The time in which the peer's region is filled has a limit of its own.
func TestFillHasALimit(t *testing.T) {
	address, _ := serve(t, memory.PeerRead|memory.PeerWrite)
	o := quick(address)
	o.Ops, o.Check = []engine.OpKind{engine.Read}, true
	r := &run{o: o, left: unlimited, fillTime: func(int64) time.Duration { return time.Nanosecond }}
	if err := r.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.fillRemote(t.Context(), 1); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "it has not taken ") {
		t.Errorf("%v", err)
	}
	r.fillTime = fillTime
	if err := errors.Join(r.fillRemote(t.Context(), 1), r.close()); err != nil {
		t.Error(err)
	}
}
