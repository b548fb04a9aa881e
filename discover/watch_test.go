package discover

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSettler(t *testing.T) {
	at := func(ms int) time.Time { return time.Time{}.Add(time.Duration(ms) * time.Millisecond) }
	for _, tt := range []struct {
		name   string
		events []int // at which ms
		due    int
	}{
		{"one", []int{100}, 400},
		{"the last counts", []int{0, 100, 350}, 650},
		{"never at rest", []int{0, 200, 400, 600, 800, 1000, 1200, 1400, 1600, 1800, 2000, 2200, 2400, 2600, 2800, 2990}, 3000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := debouncer{quiet: 300 * time.Millisecond, longest: 3 * time.Second}
			for range 2 { // the second time as the first
				if got := s.flush(at(99999)); got != "" {
					t.Errorf("%q without an event", got)
				}
				for i, ms := range tt.events {
					s.event(at(ms), []string{"route", "link"}[i%2])
					if got := s.flush(at(ms + 5)); got != "" {
						t.Errorf("%q at %d ms", got, ms+5)
					}
				}
				if !s.due().Equal(at(tt.due)) {
					t.Errorf("due %v, want %v", s.due(), at(tt.due))
				}
				want := "link, route"
				if len(tt.events) == 1 {
					want = "route"
				}
				if got := s.flush(at(tt.due)); got != want {
					t.Errorf("%q, want %q", got, want)
				}
			}
		})
	}
}

// watching runs a watch until the test ends, with what it told.
func watching(t *testing.T, opts WatchOptions, open func() ([]eventSource, []error)) (told, notes chan string) {
	t.Helper()
	noLeaks(t)
	told, notes = make(chan string, 100), make(chan string, 10)
	opts.Note = func(s string) { notes <- s }
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- watch(ctx, opts, func(why string) { told <- why }, open) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("watch: %v", err)
		}
	})
	return told, notes
}

// next is the next thing told, within a time that is long for any machine.
func next(t *testing.T, from <-chan string) string {
	t.Helper()
	select {
	case s := <-from:
		return s
	case <-time.After(30 * time.Second):
		t.Fatal("nothing was told")
		return ""
	}
}

// linuxOnly skips where there is no live machine to watch.
func linuxOnly(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("watching is for Linux")
	}
}

// Where the kernel may not be asked, files are compared.
func TestWatchPolls(t *testing.T) {
	linuxOnly(t)
	dir := smallDir(t)
	told, notes := watching(t, WatchOptions{HostRoot: dir, Poll: time.Millisecond},
		func() ([]eventSource, []error) { return nil, []error{errors.New("rtnetlink: operation not permitted")} })
	if note := next(t, notes); !strings.Contains(note, "operation not permitted; files are compared instead") {
		t.Errorf("note %q", note)
	}
	put(t, filepath.Join(dir, "sys/class/net/eno1/operstate"), "down\n")
	if got := next(t, told); got != "link" {
		t.Errorf("told %q", got)
	}
}

// Each kind of change is told by its files, and once.
func TestPollDifferences(t *testing.T) {
	linuxOnly(t)
	dir := smallDir(t)
	p, err := newPoller(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if got := p.differences(); got != nil {
		t.Errorf("%q at first", got)
	}
	for _, change := range []struct{ file, text, want string }{
		{"sys/class/net/eno1/operstate", "down\n", "link"},
		{"sys/class/net/ens1/mtu", "1500\n", "link"},
		{"sys/class/net/new0/operstate", "up\n", "link"},
		{"sys/class/infiniband/mlx5_9/node_type", "1: CA\n", "infiniband"},
		{"sys/class/drm/card9/dev", "226:9\n", "drm"},
		{"sys/class/nvme/nvme9/model", "fast\n", "nvme"},
		{"sys/bus/pci/devices/0000:ff:00.0/vendor", "0x15b3\n", "pci"},
		{"proc/net/route", "Iface Destination Gateway Flags RefCnt Use Metric\neth0 0 0 3 0 0 100\n", "route"},
		{"proc/net/if_inet6", "fe80 02 40 20 80 eth0\n", "address"},
		{"proc/net/fib_trie", "Main:\n", "address"},
	} {
		put(t, filepath.Join(dir, change.file), change.text)
		if diff := cmp.Diff([]string{change.want}, p.differences()); diff != "" {
			t.Errorf("%s (-want +got)\n%s", change.file, diff)
		}
		if got := p.differences(); got != nil {
			t.Errorf("%s: %q again", change.file, got)
		}
	}
	if _, err := newPoller(filepath.Join(dir, "nowhere")); err == nil {
		t.Error("a host that is not there")
	}
}

// Use counts of routes are no change.
func TestPollRoutes(t *testing.T) {
	linuxOnly(t)
	dir := smallDir(t)
	table := func(use, metric string) {
		put(t, filepath.Join(dir, "proc/net/route"), "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\neth0\t0\t0\t3\t0\t"+use+"\t"+metric+"\n")
		put(t, filepath.Join(dir, "proc/net/ipv6_route"), "fe80 40 0 0 0 00000100 00000001 "+use+" 00000001 eth0\n")
	}
	table("0", "100")
	p, err := newPoller(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	for _, step := range []struct {
		use, metric string
		want        []string
	}{{"0", "100", nil}, {"7", "100", nil}, {"8", "100", nil}, {"8", "200", []string{"route"}}, {"8", "200", nil}} {
		table(step.use, step.metric)
		if diff := cmp.Diff(step.want, p.differences()); diff != "" {
			t.Errorf("%+v (-want +got)\n%s", step, diff)
		}
	}
}

// pipeSource is a source that a test writes to.
func pipeSource(t *testing.T) (eventSource, *io.PipeWriter) {
	t.Helper()
	r, w := io.Pipe()
	return eventSource{name: "a pipe", file: r, read: func(b []byte) []string { return strings.Fields(string(b)) }}, w
}

// Events that come together are told together, and a source that ends is replaced by files.
func TestWatchSettles(t *testing.T) {
	linuxOnly(t)
	dir := smallDir(t)
	source, w := pipeSource(t)
	told, notes := watching(t, WatchOptions{HostRoot: dir, Settle: 50 * time.Millisecond, Poll: time.Millisecond},
		func() ([]eventSource, []error) { return []eventSource{source}, nil })
	for _, s := range []string{"route link", "link", "address"} {
		if _, err := io.WriteString(w, s); err != nil {
			t.Fatal(err)
		}
	}
	// However slow the machine, all is told, and what is told together is told once.
	var all []string
	for !slices.Contains(all, "address") {
		all = append(all, strings.Split(next(t, told), ", ")...)
	}
	for _, want := range []string{"link", "route"} {
		if !slices.Contains(all, want) {
			t.Errorf("told %q, %s is missing", all, want)
		}
	}
	if err := w.CloseWithError(os.ErrPermission); err != nil {
		t.Fatal(err)
	}
	if note := next(t, notes); note != "a pipe: permission denied; files are compared instead" {
		t.Errorf("note %q", note)
	}
	if got := next(t, told); got != lostEvents {
		t.Errorf("told %q", got)
	}
	put(t, filepath.Join(dir, "sys/class/net/eno1/operstate"), "down\n")
	if got := next(t, told); got != "link" {
		t.Errorf("told %q", got)
	}
}

// Nothing to watch is an error, and closes what was opened.
func TestWatchNothing(t *testing.T) {
	noLeaks(t)
	source, w := pipeSource(t)
	err := watch(context.Background(), WatchOptions{HostRoot: filepath.Join(t.TempDir(), "nowhere")}, func(string) {},
		func() ([]eventSource, []error) { return []eventSource{source}, []error{os.ErrPermission} })
	if !errors.Is(err, os.ErrPermission) {
		t.Errorf("error %v", err)
	}
	if _, err := io.WriteString(w, "x"); err == nil {
		t.Error("the source is still open")
	}
}
