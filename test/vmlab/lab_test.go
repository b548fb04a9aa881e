package vmlab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const patience = time.Minute

// newLab gives a lab whose machines are not started.
func newLab(t *testing.T, machines int) *lab {
	t.Helper()
	l := &lab{o: &Options{Out: t.TempDir(), Log: t.Logf}, suites: []string{"s", "r"}, result: &Result{},
		meetings: map[string]*meeting{}, cables: map[int]*Cable{0: newCable()}}
	t.Cleanup(l.cables[0].Close)
	for host := 1; host <= machines; host++ {
		l.machines = append(l.machines, &machine{host: host, ended: map[string]int{}, gone: make(chan struct{}), ready: make(chan struct{})})
	}
	return l
}

type answer struct {
	value string
	err   error
}

func (l *lab) ask(t *testing.T, host int, r Request) <-chan answer {
	out := make(chan answer, 1)
	go func() {
		value, _, err := l.handle(t.Context(), l.machines[host-1], r)
		out <- answer{value, err}
	}()
	return out
}

func wait(t *testing.T, a <-chan answer) answer {
	t.Helper()
	select {
	case got := <-a:
		return got
	case <-time.After(patience):
		t.Fatal("no answer")
		return answer{}
	}
}

// waiting blocks until so many meetings wait.
func (l *lab) waiting(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		got := len(l.meetings)
		l.mu.Unlock()
		if got == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d meetings wait, want %d", got, n)
		}
	}
}

func TestMeet(t *testing.T) {
	l := newLab(t, 2)
	for range 2 { // a name can be used again
		one := l.ask(t, 1, Request{Op: OpMeet, Suite: "s", Name: "n", Value: "from 1"})
		l.waiting(t, 1)
		other := l.ask(t, 1, Request{Op: OpMeet, Suite: "s", Name: "other"})
		l.waiting(t, 2)
		two := l.ask(t, 2, Request{Op: OpMeet, Suite: "s", Name: "n", Value: "from 2"})
		if a, b := wait(t, one), wait(t, two); a.value != "from 2" || b.value != "from 1" || a.err != nil || b.err != nil {
			t.Errorf("%+v, %+v", a, b)
		}
		if a := wait(t, l.ask(t, 2, Request{Op: OpMeet, Suite: "s", Name: "other"})); a.err != nil {
			t.Error(a.err)
		}
		wait(t, other)
	}
	one := l.ask(t, 1, Request{Op: OpMeet, Suite: "s", Name: "n"})
	l.waiting(t, 1)
	if a := wait(t, l.ask(t, 1, Request{Op: OpMeet, Suite: "s", Name: "n"})); a.err == nil {
		t.Error("one machine waits twice at a name")
	}
	wait(t, l.ask(t, 2, Request{Op: OpMeet, Suite: "s", Name: "n"}))
	wait(t, one)
}

func TestMeetAlone(t *testing.T) {
	l := newLab(t, 1)
	if a := wait(t, l.ask(t, 1, Request{Op: OpMeet, Suite: "s", Name: "n", Value: "me"})); a.value != "me" || a.err != nil {
		t.Errorf("%+v", a)
	}
}

// Who waits for a machine that has ended its suite, or is gone, is told.
func TestMeetNobody(t *testing.T) {
	l := newLab(t, 2)
	before := l.ask(t, 1, Request{Op: OpMeet, Suite: "s", Name: "n"})
	l.waiting(t, 1)
	wait(t, l.ask(t, 2, Request{Op: OpEnd, Suite: "s", Code: 7}))
	after := l.ask(t, 1, Request{Op: OpMeet, Suite: "s", Name: "m"})
	for _, a := range []<-chan answer{before, after} {
		if got := wait(t, a); got.err == nil || got.err.Error() != "machine 2 has left the suite with exit code 7" {
			t.Errorf("%+v", got)
		}
	}
	next := l.ask(t, 1, Request{Op: OpMeet, Suite: "r", Name: "n"})
	l.waiting(t, 1)
	l.died(l.machines[1])
	for _, a := range []<-chan answer{next, l.ask(t, 1, Request{Op: OpMeet, Suite: "r", Name: "m"})} {
		if got := wait(t, a); got.err == nil || got.err.Error() != "machine 2 is gone" {
			t.Errorf("%+v", got)
		}
	}
}

// A suite begins when both are there, and its end is written down.
func TestBeginAndEnd(t *testing.T) {
	l := newLab(t, 2)
	one := l.ask(t, 1, Request{Op: OpBegin, Suite: "s"})
	l.waiting(t, 1)
	select {
	case <-l.machines[0].ready:
		t.Error("a machine begins alone")
	default:
	}
	wait(t, l.ask(t, 2, Request{Op: OpBegin, Suite: "s"}))
	wait(t, one)
	<-l.machines[0].ready
	wait(t, l.ask(t, 1, Request{Op: OpEnd, Suite: "s"}))
	wait(t, l.ask(t, 2, Request{Op: OpEnd, Suite: "s", Code: 3}))
	if got := l.result; len(got.Suites) != 2 || got.Code() != 3 || got.Suites[1].Host != 2 {
		t.Errorf("%+v", got)
	}
}

func TestKeep(t *testing.T) {
	l := newLab(t, 1)
	for _, name := range []string{"../x", "/x", ""} {
		if a := wait(t, l.ask(t, 1, Request{Op: OpFile, Suite: "s", Name: name})); a.err == nil {
			t.Errorf("%q is written", name)
		}
	}
	if a := wait(t, l.ask(t, 1, Request{Op: OpFile, Suite: "s", Name: "d/x", Data: []byte("data")})); a.err != nil {
		t.Fatal(a.err)
	}
	if data, err := os.ReadFile(filepath.Join(l.o.Out, "s", "1", "d", "x")); string(data) != "data" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestRequestsThatAreWrong(t *testing.T) {
	l := newLab(t, 1)
	close(l.machines[0].gone)
	for want, r := range map[string]Request{
		"no cable for rail 9": {Op: OpWire, Rail: 9, Rule: &Rule{}}, "or no rule": {Op: OpWire},
		"no cable for rail 8": {Op: OpCount, Rail: 8}, "unknown operation": {Op: "x"},
		"is gone": {Op: OpQMP, Command: "stop"},
	} {
		if a := wait(t, l.ask(t, 1, r)); a.err == nil || !strings.Contains(a.err.Error(), want) {
			t.Errorf("%+v: %v, want %s", r, a.err, want)
		}
	}
}

// emulator puts a script in the emulator's place.
func emulator(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "qemu-system-x86_64"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// shortDir is for sockets, whose names are short.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "vmlab-") //nolint:usetesting // t.TempDir has the long name of the test in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// A machine that ends before its first suite is booted once more, and then the lab is
// broken; what it said is in the error.
func TestBootTwice(t *testing.T) {
	dir := shortDir(t)
	emulator(t, `echo boot >> `+dir+`/boots
for w; do case $w in file:*) echo "kernel panic" > "${w#file:}";; esac; done
echo "qemu says no" >&2; exit 1`)
	var log bytes.Buffer
	o := &Options{Machines: []*Machine{Rails(), TwoNodes()}, Limit: time.Minute,
		Log: func(format string, args ...any) { fmt.Fprintf(&log, format, args...) }}
	_, err := bootTwice(t.Context(), o, &Image{}, "initrd", []string{"s"}, dir)
	if !errors.Is(err, ErrBoot) || !strings.Contains(err.Error(), "kernel panic") || !strings.Contains(err.Error(), "qemu says no") {
		t.Errorf("%v", err)
	}
	if boots, _ := os.ReadFile(filepath.Join(dir, "boots")); strings.Count(string(boots), "boot") < 2 {
		t.Errorf("boots: %q", boots)
	}
}

// The time that machines may run has an end, and so does the user's patience.
func TestLimit(t *testing.T) {
	emulator(t, "exec sleep 60")
	run := func(ctx context.Context, limit time.Duration) (int, error) {
		o := &Options{Machines: []*Machine{Rails()}, Limit: limit, Log: t.Logf}
		r, err := bootTwice(ctx, o, &Image{}, "initrd", []string{"s"}, shortDir(t))
		if r == nil {
			return 0, err
		}
		return r.Boots, err
	}
	if boots, err := run(t.Context(), 100*time.Millisecond); boots != 1 || err == nil || !strings.Contains(err.Error(), "ran longer than 100ms") {
		t.Errorf("%d boots, %v", boots, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := run(ctx, time.Minute); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestRunRefuses(t *testing.T) {
	for _, o := range []Options{
		{}, {Machines: []*Machine{Rails()}}, {Machines: make([]*Machine, 3), Suites: make([]Suite, 1)},
		{Machines: []*Machine{{Layout: "none"}}, Suites: make([]Suite, 1)},
	} {
		if _, err := Run(t.Context(), o); err == nil || errors.Is(err, ErrUnavailable) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// A machine whose clock runs wrong has measured nothing.
func TestClock(t *testing.T) {
	for seconds, want := range map[float64]string{20: "", 20.3: "", 40: "2.00 times", 10: "0.50 times"} {
		l := newLab(t, 1)
		m := l.machines[0]
		m.bootSeconds, m.bootTime = 7, time.Now().Add(-20*time.Second)
		for _, s := range l.suites {
			wait(t, l.ask(t, 1, Request{Op: OpEnd, Suite: s, Uptime: 7 + seconds}))
		}
		close(m.ready)
		close(m.gone)
		if err := l.watch(t.Context()); fmt.Sprint(err) != "<nil>" != (want != "") || want != "" && !strings.Contains(err.Error(), want) {
			t.Errorf("%.1f seconds in 20: %v, want %q", seconds, err, want)
		}
	}
}
