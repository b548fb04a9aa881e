//go:build vmlab && linux

package probe

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Of linux/ethtool.h: the request that sets a speed, its size, and its fields.
const (
	ethtoolSSET = 0x2
	commandSize = 44
	atSpeed     = 12
	atDuplex    = 14
	atPort      = 15
	atSpeedHigh = 28
	duplexFull  = 1
	portOther   = 0xff
)

// says has a virtio NIC say that its cable has a speed, as a virtual machine's owner does
// (ethtool -s rail0 speed 8 duplex full): by itself it knows none. It is unknown again
// when the test is over.
func says(t *testing.T, netdev string, mbit uint32) {
	t.Helper()
	setSpeed(t, netdev, mbit)
	t.Cleanup(func() { setSpeed(t, netdev, ^uint32(0)) })
	if got, err := os.ReadFile(filepath.Join("/sys/class/net", netdev, "speed")); strings.TrimSpace(string(got)) != strconv.Itoa(int(mbit)) {
		t.Fatalf("%s says %q (%v), want %d", netdev, got, err, mbit)
	}
}

func setSpeed(t *testing.T, netdev string, mbit uint32) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var command [commandSize]byte
	binary.NativeEndian.PutUint32(command[:], ethtoolSSET)
	binary.NativeEndian.PutUint16(command[atSpeed:], uint16(mbit))
	binary.NativeEndian.PutUint16(command[atSpeedHigh:], uint16(mbit>>16))
	command[atDuplex], command[atPort] = duplexFull, portOther
	var request struct { // struct ifreq
		name [unix.IFNAMSIZ]byte
		data *byte
		_    [16]byte
	}
	copy(request.name[:unix.IFNAMSIZ-1], netdev)
	request.data = &command[0]
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		t.Fatalf("ethtool: the speed of %s: %v", netdev, errno)
	}
}
