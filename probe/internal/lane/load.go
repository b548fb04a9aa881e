package lane

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/topoctl/topoctl/internal/self"
	"github.com/topoctl/topoctl/probe"
)

// Load is how much time the processors of this host have spent so far, all together.
type Load struct {
	All  time.Duration `json:"all_ns"`
	Busy time.Duration `json:"busy_ns"` // not idle, or taken by a hypervisor
	Own  time.Duration `json:"own_ns"`  // in this process
}

// tick is that of /proc/stat: USER_HZ, which is 100 on all architectures of Go.
const tick = 10 * time.Millisecond

// LoadNow reads the load; nil where the system does not tell it.
func LoadNow() *Load {
	own, known := self.CPU(context.Background())
	all, busy, read := parseStat(FileText("/proc/stat"))
	if !known || !read {
		return nil
	}
	return &Load{All: all, Busy: busy, Own: own}
}

// Since is the load of a host since an earlier moment; none where either is not known, no time has passed, or the
// two are not of one host.
func (l *Load) Since(before *Load, host string) []probe.ProcessorLoad {
	if l == nil || before == nil {
		return nil
	}
	all, busy, own := l.All-before.All, l.Busy-before.Busy, l.Own-before.Own
	if all <= 0 || busy < 0 || busy > all || own < 0 {
		return nil
	}
	part := func(d time.Duration) float64 { return math.Round(1000*min(1, float64(d)/float64(all))) / 1000 }
	return []probe.ProcessorLoad{{Host: host, Busy: part(busy), Own: part(own)}}
}

// parseStat reads from /proc/stat the time of all CPUs together, and the part of it that they were not
// idle. Source: proc(5): user, nice, system, idle, iowait, irq, softirq, steal, of which guests' time is a
// part.
func parseStat(stat string) (all, busy time.Duration, ok bool) {
	line, _, _ := strings.Cut(stat, "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return 0, 0, false
	}
	for i, word := range f[1:9] {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/16/int64(tick) {
			return 0, 0, false
		}
		all += time.Duration(n) * tick
		if i != 3 && i != 4 { // idle, iowait
			busy += time.Duration(n) * tick
		}
	}
	return all, busy, true
}
