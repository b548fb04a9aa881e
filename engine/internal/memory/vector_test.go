//go:build unix

package memory_test

import (
	"bytes"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/engine/internal/memory"
)

// pipe is a non-blocking pipe.
func pipe(t *testing.T) (r, w uintptr) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe(fds[:]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	for _, fd := range fds {
		if err := unix.SetNonblock(fd, true); err != nil {
			t.Fatal(err)
		}
	}
	return uintptr(fds[0]), uintptr(fds[1])
}

func TestVectorMovesPieces(t *testing.T) {
	r, w := pipe(t)
	out, in := memory.NewVector(4), memory.NewVector(3)
	for _, s := range []string{"a", "", "bcd", "efghi"} {
		out.Add([]byte(s))
	}
	if out.Bytes() != 9 || out.Room() != 1 {
		t.Fatalf("%d bytes, room for %d; want 9 and 1", out.Bytes(), out.Room())
	}
	out.Advance(2)
	for out.Bytes() > 0 {
		n, errno := out.Writev(w)
		if errno != 0 {
			t.Fatal(errno)
		}
		out.Advance(n)
	}
	got := [2][]byte{make([]byte, 3), make([]byte, 4)}
	in.Add(got[0])
	in.Add(got[1])
	for in.Bytes() > 0 {
		n, errno := in.Readv(r)
		if errno != 0 {
			t.Fatal(errno)
		}
		in.Advance(n)
	}
	if s := string(bytes.Join(got[:], []byte("|"))); s != "cde|fghi" {
		t.Fatalf("read %q", s)
	}
	in.Reset()
	in.Add(got[0])
	if _, errno := in.Readv(r); errno != syscall.EAGAIN {
		t.Fatalf("an empty pipe gives %v, want EAGAIN", errno)
	}
}

func TestVectorDoesNotAllocate(t *testing.T) {
	f, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd := f.Fd()
	v := memory.NewVector(600)
	b := make([]byte, 600)
	if n := testing.AllocsPerRun(10, func() {
		v.Reset()
		for i := range b {
			v.Add(b[i : i+1])
		}
		if n, errno := v.Readv(fd); n < 1 || errno != 0 {
			t.Fatalf("%d, %v", n, errno)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
