package memory

import (
	"errors"
	"math"
	"testing"

	"golang.org/x/sys/unix"
)

// The system is never asked to fault in more than it has: it would kill a process.
func TestEnough(t *testing.T) {
	for text, want := range map[string]int64{
		"MemTotal:  9 kB\nMemAvailable:       3 kB\nBuffers: 1 kB\n": 3 << 10,
		"MemAvailable: 3\n":                    -1,
		"MemAvailable: x kB\n":                 -1,
		"MemAvailable: 99999999999999999 kB\n": -1,
		"MemTotal: 9 kB":                       -1,
		"":                                     -1,
	} {
		got, ok := available([]byte(text))
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %d, %v", text, got, ok)
		}
	}
	if err := enough(4096); err != nil {
		t.Error(err)
	}
	if err := enough(math.MaxInt64); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("everything there is: %v", err)
	}
}
