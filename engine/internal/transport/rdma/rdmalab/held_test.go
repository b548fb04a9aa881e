//go:build vmlab && linux && cgo

package rdma

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// Held is what a process and its machine's RDMA devices hold.
type Held struct {
	Goroutines, Files int
	// Objects are the kernel's, by kind: "qp", "cq", "mr", "pd", "ctx".
	Objects map[string]int
}

func countHeld(ctx context.Context) (Held, error) {
	h := Held{Goroutines: runtime.NumGoroutine(), Objects: map[string]int{}}
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return h, err
	}
	h.Files = len(names)
	for _, kind := range []string{"qp", "cq", "mr", "pd"} {
		out, err := exec.CommandContext(ctx, "rdma", "-j", "resource", "show", kind).Output()
		if err != nil {
			return h, fmt.Errorf("rdma resource show %s: %w", kind, err)
		}
		var list []json.RawMessage
		if len(out) > 0 {
			if err := json.Unmarshal(out, &list); err != nil {
				return h, fmt.Errorf("rdma resource show %s: %w: %.200s", kind, err, out)
			}
		}
		h.Objects[kind] = len(list)
	}
	return h, nil
}

// left says what is held beyond what was held before; it waits a little for what is on
// its way out.
func (before Held) left() string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		now, err := countHeld(ctx)
		if err != nil {
			return err.Error()
		}
		var more []string
		add := func(what string, was, is int) {
			if is > was {
				more = append(more, fmt.Sprintf("%d %s, %d before", is, what, was))
			}
		}
		add("goroutines", before.Goroutines, now.Goroutines)
		add("open files", before.Files, now.Files)
		for kind, n := range now.Objects {
			add(kind+"s", before.Objects[kind], n)
		}
		if len(more) == 0 {
			return ""
		}
		select {
		case <-ctx.Done():
			stacks := make([]byte, 1<<16)
			return strings.Join(more, ", ") + "\n" + string(stacks[:runtime.Stack(stacks, true)])
		case <-time.After(100 * time.Millisecond):
		}
	}
}
