//go:build vmlab && linux && cgo

package rdma

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func counters() string {
	var b strings.Builder
	for rail := range 2 {
		out, _ := exec.Command("tc", "-s", "qdisc", "show").CombinedOutput()
		if rail == 0 {
			for _, l := range strings.Split(string(out), "\n") {
				if strings.Contains(l, "netem") || strings.Contains(l, "backlog") || strings.Contains(l, "Sent") {
					fmt.Fprintf(&b, "%s; ", strings.TrimSpace(l))
				}
			}
		}
	}
	dirs, _ := filepath.Glob("/sys/class/infiniband/*/ports/1/hw_counters/*")
	for _, f := range dirs {
		v, _ := os.ReadFile(f)
		if s := strings.TrimSpace(string(v)); s != "0" {
			p := strings.Split(f, "/")
			fmt.Fprintf(&b, "%s.%s=%s ", p[4], filepath.Base(f), s)
		}
	}
	return b.String()
}

func (f *Far) Counters(_ Nothing, s *string) error { *s = counters(); return nil }

func TestDiag(t *testing.T) {
	mended(t)
	const rate = 10_000_000
	for _, k := range []struct {
		name  string
		read  bool
		rates map[int]int64
		lanes int
	}{
		{"read mixed", true, map[int]int64{0: 2 * rate, 1: rate}, 2},
		{"write mixed", false, map[int]int64{0: 2 * rate, 1: rate}, 2},
		{"read one", true, map[int]int64{0: rate, 1: rate}, 1},
		{"read two", true, map[int]int64{0: rate, 1: rate}, 2},
		{"read mixed", true, map[int]int64{0: 2 * rate, 1: rate}, 2},
	} {
		if err := shape(bounded(t), k.rates); err != nil {
			t.Fatal(err)
		}
		t.Run(k.name, func(t *testing.T) {
			all := []int{0, 1}
			near, there := Spec{Transports: []string{*over}, Rails: all[:k.lanes], Bytes: 1 << 20}, Spec{Transports: []string{*over}, Bytes: 1 << 20}
			d := newDuos(t, near, there)
			stop, done := make(chan bool), make(chan bool)
			began := time.Now()
			go func() {
				defer close(done)
				for {
					select {
					case <-stop:
						return
					case <-time.After(300 * time.Millisecond):
					}
					s := fmt.Sprintf("%5d ms", time.Since(began).Milliseconds())
					for _, l := range d.peer.Lanes() {
						if l.Slices+l.InflightBytes == 0 {
							continue
						}
						s += fmt.Sprintf(" | %s %s %.1f Mb/s(%v) %d KiB, in %d KiB %d, win %d KiB, retr %d", l.Lane, l.Health, float64(l.BytesPerSec)*8/1e6, l.Measured, l.Bytes>>10, l.InflightBytes>>10, l.InflightSlices, l.WindowBytes>>10, l.Retries)
					}
					fmt.Println("DIAG", s)
				}
			}()
			v := d.stream(k.read, 4, 64<<10, 2*time.Second, 4*time.Second)
			close(stop)
			<-done
			var there2 string
			mustAsk(t, "Counters", Nothing{}, &there2)
			fmt.Printf("DIAG %s: %.1f Mbit/s\nDIAG here  %s\nDIAG there %s\n", k.name, v*8/1e6, counters(), there2)
		})
	}
}
