package vmlab

import (
	"bytes"
	"fmt"
	"regexp"
	"runtime"
	"runtime/pprof"
	"strconv"
)

var perSecond = regexp.MustCompile(`cycles/second=(\d+)`)

// tscKHz is how fast this machine's time stamp counter runs, which is the one that an
// emulated processor shows. A guest that is left to find out by itself compares it with
// timers that the emulator serves late when it has to wait for a processor: its clock
// then runs up to fifty times too fast. 0 is a machine without such a counter.
func tscKHz() (int, error) {
	if runtime.GOARCH != "amd64" {
		return 0, nil
	}
	// The runtime measures it for its profiles of locks, over a tenth of a second at least.
	var profile bytes.Buffer
	if err := pprof.Lookup("mutex").WriteTo(&profile, 1); err != nil {
		return 0, err
	}
	m := perSecond.FindSubmatch(profile.Bytes())
	if m == nil {
		return 0, fmt.Errorf("qemu: the runtime does not say how fast the time stamp counter is")
	}
	hz, err := strconv.Atoi(string(m[1]))
	if err != nil || hz < 100_000_000 {
		return 0, fmt.Errorf("qemu: a time stamp counter of %s Hz cannot be", m[1])
	}
	return (hz + 500) / 1000, nil
}
