package bench

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The rates around a fault and the longest gap come from the times of batches.
func TestMeterFault(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	var latency recorder
	m := newMeter(start, &latency)
	for ms := 100; ms <= 1000; ms += 100 {
		m.done(at(ms-50), at(ms), 100, 1)
	}
	if m.fault("eth1", at(1000)) != nil {
		t.Error("a fault that never was")
	}
	m.setPhase(duringFault, at(1050)) // 50 ms after a batch: this gap begins with the fault
	m.done(at(1000), at(1350), 100, 1)
	m.done(at(1350), at(1450), 100, 1)
	n := func(v int64) *int64 { return &v }
	want := &Fault{Lane: "eth1", AtNS: 1050e6, BeforeBytesPerSec: n(952), DuringBytesPerSec: n(400), LongestGapNS: n(300e6)}
	if diff := cmp.Diff(want, m.fault("eth1", at(1550))); diff != "" {
		t.Errorf("lane out until the end (-want +got):\n%s", diff)
	}
	m.setPhase(afterFault, at(2050))
	m.done(at(1450), at(2100), 100, 1)
	want = &Fault{Lane: "eth1", AtNS: 1050e6, ResumedAtNS: n(2050e6), BeforeBytesPerSec: n(952), DuringBytesPerSec: n(200),
		AfterBytesPerSec: n(1000), LongestGapNS: n(650e6)}
	if diff := cmp.Diff(want, m.fault("eth1", at(2150))); diff != "" {
		t.Errorf("lane back (-want +got):\n%s", diff)
	}
	if latency.n != 13 || m.ops != 13 || m.bytesSoFar() != 1300 {
		t.Errorf("%d samples, %d ops, %d bytes", latency.n, m.ops, m.bytes)
	}
}
