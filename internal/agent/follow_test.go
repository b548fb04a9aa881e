package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
)

// told is an engine that is told topologies.
type told struct {
	mu   sync.Mutex
	list []*topo.Topology
}

func (e *told) SetTopology(_ context.Context, t *topo.Topology) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, t)
	return nil
}

func (e *told) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.list)
}

// What changed is discovered anew once, when it has settled; a discovery that failed is
// tried again.
func TestFollow(t *testing.T) {
	var mu sync.Mutex
	text, fails, asked := "up", 1, 0
	set := func(s string) { mu.Lock(); defer mu.Unlock(); text = s }
	o := &Options{Engine: engine.Options{Logger: slog.New(slog.DiscardHandler)}, PollInterval: time.Millisecond, InitialPortState: "up",
		PortState: func() string { mu.Lock(); defer mu.Unlock(); return text },
		Rediscover: func(context.Context) (*topo.Topology, error) {
			mu.Lock()
			defer mu.Unlock()
			asked++
			if fails--; fails >= 0 {
				return nil, errors.New("no /sys")
			}
			return &topo.Topology{}, nil
		}}
	e := &told{}
	stop := follow(t.Context(), o, e)
	defer stop()
	within := func(what string, ok func() bool) {
		t.Helper()
		for until := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
			if time.Now().After(until) {
				t.Fatal("not within a minute: " + what)
			}
		}
	}
	time.Sleep(20 * time.Millisecond)
	if e.count() != 0 {
		t.Error("nothing has changed, and the engine is told")
	}
	set("down")
	within("the engine is told", func() bool { return e.count() == 1 })
	time.Sleep(20 * time.Millisecond)
	mu.Lock()
	if asked != 2 || len(e.list) != 1 {
		t.Errorf("discovered %d times, told %d times: want 2 and 1", asked, len(e.list))
	}
	mu.Unlock()
	set("up")
	within("the engine is told again", func() bool { return e.count() == 2 })
	stop()
	set("gone")
	time.Sleep(5 * time.Millisecond)
	if e.count() != 2 {
		t.Error("it goes on after the end")
	}
	follow(t.Context(), &Options{Rediscover: o.Rediscover, PortState: o.PortState}, e)() // every 0: never
}

func TestFollowerWaitsUntilItSettles(t *testing.T) {
	f := follower{applied: "a", last: "a"}
	for i, step := range []struct {
		now  string
		want bool
	}{{"a", false}, {"b", false}, {"c", false}, {"c", true}, {"c", false}, {"d", false}, {"c", false}, {"c", false}, {"a", false}, {"a", true}} {
		if got := f.changed(step.now); got != step.want {
			t.Errorf("step %d, %s: %v", i, step.now, got)
		}
	}
}

func TestLookAtPorts(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(root, "sys/class/infiniband/mlx5_0/ports/1", path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("state", "4: ACTIVE\n")
	write("gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001\n")
	write("gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n")
	look := PortState(root)
	was := look()
	if was != look() || !strings.Contains(was, "4: ACTIVE") || !strings.Contains(was, "0 fe80:") || strings.Contains(was, "1 0000") {
		t.Errorf("looks like\n%s", was)
	}
	write("gids/1", "0000:0000:0000:0000:0000:ffff:0a00:0001\n")
	if now := look(); now == was || !strings.Contains(now, "1 0000:0000:0000:0000:0000:ffff:0a00:0001") {
		t.Errorf("a new address is not seen:\n%s", now)
	}
	write("state", "1: DOWN\n")
	if now := look(); !strings.Contains(now, "1: DOWN") {
		t.Errorf("a link that went down is not seen:\n%s", now)
	}
}
