package lanes

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// addWire makes a lane that this process carries, frame by frame, at a rate in Mbit/s and
// direction. A wire goes on while nobody looks: what it could have sent while this process did not
// run it sends at once. A shaper of the kernel loses that, unless it has a burst, which in turn
// hides the beginning of a transfer.
func (l *lab) addWire(i, mbit int) {
	l.t.Helper()
	near, there := l.tap(nearName(i)), l.tap(farName(i))
	l.must("move", l.near.LinkSetNsPid(l.link(l.near, farName(i)), l.far.pid()))
	l.address(i)
	var pumps sync.WaitGroup
	pumps.Go(func() { pump(there, near, mbit) })
	pumps.Go(func() { pump(near, there, mbit) })
	l.t.Cleanup(func() {
		near.Close()
		there.Close()
		pumps.Wait()
	})
}

// tap is an interface whose frames this process reads and writes.
func (l *lab) tap(name string) *os.File {
	l.t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		l.t.Skipf("no interface can be carried by a process here: /dev/net/tun: %v", err)
	}
	ask, err := unix.NewIfreq(name)
	l.must(name, err)
	ask.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ask); err != nil {
		unix.Close(fd)
		l.t.Skipf("no interface can be carried by a process here: %v", err)
	}
	link := l.link(l.near, name)
	l.must("queue", l.near.LinkSetTxQLen(link, 4096))
	f := os.NewFile(uintptr(fd), name)
	l.t.Cleanup(func() { f.Close() })
	return f
}

// slack is what a wire may be ahead of its time: sleeping for less takes longer.
const slack = 200 * time.Microsecond

// pump carries frames from one interface to another until either is closed. What came while it
// slept for too long counts as waiting since before: that is less than watchStops sees.
func pump(to, from *os.File, mbit int) {
	frame := make([]byte, 64<<10)
	sent := time.Now() // when the last bit of all frames so far is on the wire
	for {
		n, waited, err := readFrame(from, frame)
		if err != nil {
			return
		}
		if now := time.Now(); waited && now.After(sent) {
			sent = now
		}
		sent = sent.Add(time.Duration(n*8*1000/mbit) * time.Nanosecond)
		if ahead := time.Until(sent); ahead > slack {
			time.Sleep(ahead)
		}
		if _, err := to.Write(frame[:n]); err != nil {
			return
		}
	}
}

// readFrame reads the next frame, and says whether it had to be waited for.
func readFrame(from *os.File, frame []byte) (n int, waited bool, err error) {
	raw, err := from.SyscallConn()
	if err != nil {
		return 0, false, err
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		n, failed = unix.Read(int(fd), frame)
		waited = waited || failed == unix.EAGAIN
		return failed != unix.EAGAIN
	})
	if err == nil {
		err = failed
	}
	return max(n, 0), waited, err
}
