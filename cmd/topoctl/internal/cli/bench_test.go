package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/bench"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
)

func TestBenchHints(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&bench.UnknownLaneError{Name: "ech0 > n2:eth0", Lanes: []string{"eth0 > n2:eth0", "eth1 > n2:eth1"}}, `did you mean "eth0 > n2:eth0"?`},
		{&bench.UnknownLaneError{Name: "wlan", Lanes: []string{"eth0 > n2:eth0"}}, ""},
		{errors.Join(errors.New("no kv"), engine.ErrNoRegion), `"topoctl agent" serves "bench"; use --region NAME for another`},
		{fmt.Errorf("dial tcp 10.0.0.1:7411: connect: %w", syscall.ECONNREFUSED), `run "topoctl agent" on the other host; it prints the command to run here`},
		{fmt.Errorf("10.0.0.1:9411: %w", engine.ErrNotEngine), `--peer is the --listen address of "topoctl agent", not its --http address`},
		{fmt.Errorf("has not answered: %w", context.DeadlineExceeded), `check that this is the address of "topoctl agent", or use --timeout DURATION to allow more time`},
		{fmt.Errorf("agent: HTTP at 127.0.0.1:1: %w", syscall.EADDRINUSE), "another program uses this port; --http with port 0 chooses a free one"},
		{&engine.NotOfferedError{Transports: []pathsel.Transport{"shm", "rdma"}, Err: engine.ErrNoLane}, "see the output of the agent on the other host for why it has no RDMA"},
		{&engine.NotOfferedError{Transports: []pathsel.Transport{"shm"}, Err: engine.ErrNoLane}, ""},
		{fmt.Errorf("peer \"n2:7411\": %w: lookup n2: no such host", engine.ErrNoPeer), `--peer wants the address or a name of the other host, and the port of its "topoctl agent"`},
		{fmt.Errorf("10.0.0.1:7411: %w", engine.ErrToken), "use the same --token-file on both hosts"},
	} {
		if got := Hint(peerHint(tt.err)); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.err, got, tt.want)
		}
	}
}

// What people see of a report, with everything that can go wrong.
func TestBenchText(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	q := func(v float64) *float64 { return &v }
	s := func(v string) *string { return &v }
	latency := bench.Latency{P50: n(3_140_000), P90: n(3_500_000), P99: n(4_000_000), Max: n(12_345_678), N: 900}
	result := bench.Result{Op: "write", Transport: "tcp", Policy: "adaptive", SizeBytes: 64 << 10, Batch: 128, Threads: 1, InFlight: 2,
		Complete: true, Bytes: 5_200_000_000, DurationNS: 1e9, BytesPerSec: 5_200_000_000, OpsPerSec: 79345, Latency: latency, CPUSecondsPerGB: q(0.312), LocalCPUSecondsPerGB: q(0.2), OfRawSocket: q(0.94), OfMemcpy: q(0.7123),
		Lanes: []bench.LaneResult{{Lane: "eth0 > n2:eth0", Transport: "tcp", Bytes: 3}, {Lane: "eth1 > n2:eth1", Transport: "tcp", Bytes: 1}}, CongestionControl: s("cubic")}
	odd := result
	odd.Policy, odd.OfRawSocket, odd.CPUSecondsPerGB, odd.Retries, odd.Lanes = "random", nil, nil, 3, nil
	odd.Verified = &bench.Check{Bytes: 1 << 20, MismatchedBytes: 2, MismatchedOps: 1, First: s("write of 64 KiB: byte 7 of the peer's region")}
	odd.Fault = &bench.Fault{Lane: "eth0 > n2:eth0", AtNS: 1e9, ResumedAtNS: n(3e9), BeforeBytesPerSec: n(5e9), DuringBytesPerSec: n(2e9), AfterBytesPerSec: n(5e9), LongestGapNS: n(61e6)}
	odd.Complete, odd.DurationNS, odd.Error = false, 203e6, s("peer is lost")
	other := result
	other.Op, other.Verified, other.Latency = "read", &bench.Check{Bytes: 1 << 30}, bench.Latency{}
	r := &bench.Report{Host: "n1", Peer: bench.Peer{Name: "n2", Address: "10.0.0.2:7411", Region: "bench"}, CPUs: 2,
		Memory:  bench.Memory{LocalBytes: 256 << 20, WorkingSetBytes: 512 << 20, Layout: "scattered", Notes: []string{"no huge pages"}},
		Results: []bench.Result{result, odd, other},
		Ceilings: []bench.Ceiling{
			{Kind: bench.RawSocket, Op: "write", SizeBytes: 64 << 10, Streams: 2, BytesPerSec: n(5_500_000_000), CPUSecondsPerGB: q(0.3), CongestionControl: s("cubic")},
			{Kind: bench.Memcpy, Op: "write", SizeBytes: 64 << 10, Streams: 1, BytesPerSec: n(7_300_000_000)},
			{Kind: bench.RawSocket, Op: "read", SizeBytes: 64 << 10, Streams: 1, Reason: s("the peer is another host")},
		}}
	want := `WRONG: 2 bytes of 1 MiB differ in write of 64 KiB by tcp; FAILED: 1 of 3 measurements: peer is lost; write 5.2 GB/s (ops of 64 KiB), read 5.2 GB/s (ops of 64 KiB) by tcp over eth0 > n2:eth0 75 %, eth1 > n2:eth1 25 %.

n1 with peer n2 at 10.0.0.2:7411, region bench
working set 512 MiB: 256 MiB on each side, scattered; 2 CPUs; congestion control cubic
note: no huge pages
p50 to max: latency of a batch. CPU s/GB: CPU time for 10^9 bytes ("here": without the peer's).
of raw, of copy: the rate divided by that of a raw socket, and of memcpy.

write 64 KiB x 128, 1 thread x 2 in flight
                  rate      ops/s   p50      p99      p99.9  max      CPU s/GB   of raw  of copy  lanes
  tcp             5.2 GB/s  79,345  3.14 ms  4.00 ms  -      12.3 ms  0.31       0.94    0.71     eth0 > n2:eth0 75 %, eth1 > n2:eth1 25 %
  tcp             5.2 GB/s  79,345  3.14 ms  4.00 ms  -      12.3 ms  0.20 here  -       0.71
        PARTIAL: measured for 203 ms
        3 slices sent again, 0 changes to a worse transport
        WRONG: 2 bytes of 1 MiB in 1 op differ; the first: write of 64 KiB: byte 7 of the peer's region
        lane eth0 > n2:eth0 out after 1s, back after 3s: 5.0 GB/s before, 2.0 GB/s during, 5.0 GB/s after; longest time without a batch 61.0 ms (the lane carried nothing)
        FAILED: peer is lost
  raw socket x 2  5.5 GB/s                                            0.30
  memcpy          7.3 GB/s

read 64 KiB x 128, 1 thread x 2 in flight
              rate      ops/s   p50  p99  p99.9  max  CPU s/GB  of raw  of copy  lanes
  tcp         5.2 GB/s  79,345  -    -    -      -    0.31      0.94    0.71     eth0 > n2:eth0 75 %, eth1 > n2:eth1 25 %
        verified 1 GiB: every byte is right
  raw socket  - (the peer is another host)

incomplete: of 4 measurements, 2 complete, 1 partial, 1 without a result
`
	if diff := cmp.Diff(want, benchText(r, 4, &Look{Units: "gbyte"})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The first line is the answer: how fast, over which lanes, and whether what arrived is right.
func TestBenchAnswer(t *testing.T) {
	why := "peer is lost"
	lanes := []bench.LaneResult{{Lane: "eth0 > n2:eth0", Transport: "tcp", Bytes: 3}}
	result := func(op string, rate int64, v *bench.Check) bench.Result {
		return bench.Result{Op: op, Transport: "tcp", SizeBytes: 4 << 10, BytesPerSec: rate, Lanes: lanes, Verified: v}
	}
	right := &bench.Check{Bytes: 1 << 20}
	for _, tt := range []struct {
		results []bench.Result
		want    string
	}{
		{nil, "Nothing was measured."},
		{[]bench.Result{{Op: "write", Error: &why}}, "Nothing was measured: peer is lost."},
		{[]bench.Result{result("write", 4e9, nil), result("write", 5e9, nil)},
			"Write 5.0 GB/s (ops of 4 KiB) by tcp over eth0 > n2:eth0 100 %; bytes were not verified (--check does)."},
		{[]bench.Result{result("write", 4e9, right), result("read", 5e9, right)},
			"Write 4.0 GB/s (ops of 4 KiB), read 5.0 GB/s (ops of 4 KiB) by tcp over eth0 > n2:eth0 100 %; every byte is right (2 MiB verified)."},
		{[]bench.Result{result("write", 4e9, right), result("read", 5e9, &bench.Check{})},
			"Write 4.0 GB/s (ops of 4 KiB), read 5.0 GB/s (ops of 4 KiB) by tcp over eth0 > n2:eth0 100 %; 1 MiB were verified and are right."},
		{[]bench.Result{{Op: "write", Transport: "tcp", SizeBytes: 4 << 10, BytesPerSec: 4e9, Lanes: lanes, Error: &why}},
			"FAILED: 1 of 1 measurement: peer is lost; write 4.0 GB/s (ops of 4 KiB) by tcp over eth0 > n2:eth0 100 %; bytes were not verified (--check does)."},
	} {
		if got := benchAnswer(&bench.Report{Results: tt.results}, &Look{Units: "gbyte"}); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestDurationText(t *testing.T) {
	for ns, want := range map[int64]string{0: "0.00 µs", 8800: "8.80 µs", 99_999: "100.0 µs", 123_456: "123 µs", 12_345_678: "12.3 ms", 2_000_000_000: "2.00 s"} {
		if got := duration(&ns); got != want {
			t.Errorf("%d: %q, want %q", ns, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}

func TestBenchProgress(t *testing.T) {
	f := newStreams()
	f.ErrTTY = true
	o := &benchOptions{Host: &Host{Streams: f.Streams, Globals: Globals{Units: "gbyte"}}}
	bar := status{in: o.Host}
	bar.show(o.progressLine(bench.Progress{What: "write 64 KiB, tcp, adaptive\x1b[2J", Step: 3, Steps: 12, BytesPerSec: 5e9, Left: 90 * time.Second}))
	if got := f.Stderr.String(); got != clearLine+`[3/12] write 64 KiB, tcp, adaptive\x1b[2J  5.0 GB/s  1m30s left` {
		t.Errorf("%q", got)
	}
	var kept bytes.Buffer
	w := &limited{w: &kept, left: 5}
	for range 3 {
		if n, err := w.Write([]byte("abc")); n != 3 || err != nil {
			t.Error(n, err)
		}
	}
	if kept.String() != "abcab" {
		t.Errorf("kept %q", kept.String())
	}
}

// What failed before anything was moved has no rate, rather than one of nothing; where nothing was compared, nothing is right.
func TestBenchTextOfNothing(t *testing.T) {
	why, zero := "peer is lost", 0.0
	x := bench.Result{Op: "read", Transport: "tcp", Policy: "adaptive", Error: &why, OfRawSocket: &zero, OfMemcpy: &zero, Verified: &bench.Check{}}
	text := (&Look{Units: units.Gbyte}).Listing([]Row{resultRow(&x, &Look{Units: units.Gbyte})})
	if strings.Contains(text, "0 GB/s") || strings.Contains(text, "0.00") || strings.Contains(text, "right") || !strings.Contains(text, "FAILED: peer is lost") || !strings.Contains(text, "nothing was verified") {
		t.Errorf("%s", text)
	}
}
