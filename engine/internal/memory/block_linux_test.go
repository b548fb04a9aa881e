package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unsafe"

	"golang.org/x/sys/unix"
)

func file(t *testing.T, b *Block, write bool) int {
	t.Helper()
	fd, ok, err := b.File(write)
	if err != nil || !ok {
		t.Fatalf("file: %v, %v", ok, err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func TestMapSharesBytes(t *testing.T) {
	for _, size := range []int64{1, 4096, 100001} {
		b := alloc(t, size, Options{})
		m, err := Map(file(t, b, true), size, true)
		if err != nil {
			t.Fatal(err)
		}
		random(b.Bytes(), 1)
		if !bytes.Equal(m.Bytes(), b.Bytes()) {
			t.Error("our bytes are not the peer's")
		}
		random(m.Bytes(), 2)
		if !bytes.Equal(m.Bytes(), b.Bytes()) {
			t.Error("the peer's bytes are not ours")
		}
		// After the owner has hidden it, the pages live on for those that map them,
		// and what they write reaches nobody.
		if err := b.Hide(); err != nil {
			t.Fatal(err)
		}
		m.Bytes()[0]++
		if err := m.Free(); err != nil {
			t.Error(err)
		}
	}
}

func TestReadOnlyFileStaysReadOnly(t *testing.T) {
	b := alloc(t, 8192, Options{})
	fd := file(t, b, false)
	if _, err := Map(fd, 8192, true); !errors.Is(err, unix.EACCES) {
		t.Errorf("mapped for writing: %v", err)
	}
	m, err := Map(fd, 8192, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Free() }()
	b.Bytes()[5] = 9
	if m.Bytes()[5] != 9 {
		t.Error("does not see the bytes")
	}
	if !faults(func() { m.Bytes()[5] = 1 }) {
		t.Error("a read-only mapping was written")
	}
	if err := unix.Mprotect(m.Bytes(), unix.PROT_READ|unix.PROT_WRITE); err == nil {
		t.Error("the mapping was made writable")
	}
	if _, err := unix.Write(fd, []byte{1}); err == nil {
		t.Error("the descriptor was written")
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("the descriptor survives exec (%v)", err)
	}
}

// TestGrantSeals reopens what a peer is given, as a hostile one would.
func TestGrantSeals(t *testing.T) {
	for _, grant := range []Grant{None, PeerRead, PeerWrite, PeerRead | PeerWrite} {
		tab := NewTable(1)
		b, err := Alloc(8192, Options{Lazy: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tab.Add(b, "kv", "", grant); err != nil {
			t.Fatal(err)
		}
		given := file(t, b, grant&PeerWrite != 0)
		again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", given), unix.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		m, err := Map(again, 8192, true)
		if (err == nil) != (grant&PeerWrite != 0) {
			t.Errorf("grant %s: mapped for writing: %v", grant, err)
		}
		if err == nil {
			_ = m.Free()
		}
		_, err = unix.Pwrite(again, []byte{1}, 0)
		if (err == nil) != (grant&PeerWrite != 0) {
			t.Errorf("grant %s: written: %v", grant, err)
		}
		if grant&PeerWrite == 0 {
			if err := unix.Fallocate(again, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096); err == nil {
				t.Errorf("grant %s: a hole was punched", grant)
			}
		}
		if _, err := unix.FcntlInt(uintptr(again), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err == nil {
			t.Errorf("grant %s: a peer sealed our memory", grant)
		}
		unix.Close(again)
		random(b.Bytes(), 1) // ours stays writable, faulted in or not
		closeTable(t, tab)
	}
}

// A kernel that cannot seal a file against writing has no peer get one.
func TestReadOnlyBeforeLinux51(t *testing.T) {
	now := addSeals
	defer func() { addSeals = now }()
	addSeals = func(fd, seals int) error {
		if seals&unix.F_SEAL_FUTURE_WRITE != 0 {
			return unix.EINVAL
		}
		return now(fd, seals)
	}
	for _, grant := range []Grant{None, PeerRead, PeerWrite, PeerRead | PeerWrite} {
		tab, b := NewTable(1), alloc(t, 4096, Options{})
		if _, err := tab.Add(b, "kv", "", grant); err != nil {
			t.Fatal(err)
		}
		fd, has, err := b.File(false)
		if want := grant&PeerWrite != 0; err != nil || has != want || slices.Contains(b.Info().Notes, noFutureWrite) == want {
			t.Errorf("grant %s: a file: %v, %v; %q", grant, has, err, b.Info().Notes)
		}
		if has {
			unix.Close(fd)
		}
		random(b.Bytes(), 1)
		closeTable(t, tab)
	}
}

func TestSeals(t *testing.T) {
	b := alloc(t, 8192, Options{})
	fd := file(t, b, true)
	if err := unix.Ftruncate(fd, 4096); err == nil {
		t.Error("shrunk")
	}
	if err := unix.Ftruncate(fd, 1<<20); err == nil {
		t.Error("grown")
	}
	for _, size := range []int64{8191, 8193, 4096, 1 << 40} {
		if m, err := Map(fd, size, true); err == nil {
			_ = m.Free()
			t.Errorf("mapped as %d bytes", size)
		}
	}
}

func TestMapRefusesUnsealed(t *testing.T) {
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := Map(fd, 4096, true); !errors.Is(err, ErrUnsealed) {
		t.Errorf("unsealed memfd: %v", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_GROW); err != nil {
		t.Fatal(err)
	}
	if _, err := Map(fd, 4096, true); !errors.Is(err, ErrUnsealed) {
		t.Errorf("sealed against growing only: %v", err)
	}
	f, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	if _, err := Map(int(f.Fd()), 4096, true); !errors.Is(err, ErrUnsealed) {
		t.Errorf("a file: %v", err)
	}
	if _, err := Map(-1, 4096, true); err == nil {
		t.Error("no file: no error")
	}
}

func TestAllocPool(t *testing.T) {
	text, err := os.ReadFile("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
	if err != nil {
		t.Skipf("this kernel has no pool of 2 MiB pages: %v", err)
	}
	empty := strings.TrimSpace(string(text)) == "0"
	for _, backing := range []Backing{Shared, Private} {
		b, err := Alloc(100, Options{Backing: backing, Pages: Huge2MiB})
		switch {
		case err == nil:
			if info := b.Info(); info.PageBytes != 2<<20 {
				t.Errorf("pages of %d", info.PageBytes)
			}
			random(b.Bytes(), 1)
			_ = b.Free()
		case !strings.Contains(err.Error(), "hugepages-2048kB/nr_hugepages"):
			t.Errorf("error does not say where pages come from: %v", err)
		case !empty:
			t.Logf("the pool has pages, and there is an error: %v", err)
		}
	}
}

func TestHugeIsToldAsItIs(t *testing.T) {
	for _, backing := range []Backing{Shared, Private} {
		b := alloc(t, 8<<20, Options{Backing: backing, Pages: Huge})
		info := b.Info()
		if b.area.start%mib2 != 0 {
			t.Errorf("starts at %#x: no huge page fits there", b.area.start)
		}
		switch info.PageBytes {
		case mib2:
		case basePage():
			if len(info.Notes) == 0 {
				t.Error("no huge pages, and no note says why")
			}
		default:
			t.Errorf("pages of %d bytes", info.PageBytes)
		}
		t.Logf("backing %d: %+v", backing, info)
	}
}

func TestBind(t *testing.T) {
	b, err := Alloc(1<<20, Options{Nodes: []int{0, 0}})
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		t.Skipf("mbind is not permitted or not in this kernel: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Free() }()
	if n := b.Info().Nodes; !slices.Equal(n, []int{0}) && len(b.Info().Notes) == 0 {
		t.Errorf("bound to %v", n)
	}
	var mode int
	_, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&mode)), 0, 0, b.area.start, unix.MPOL_F_ADDR, 0)
	if errno != 0 || len(b.Info().Nodes) > 0 && mode != unix.MPOL_BIND {
		t.Errorf("policy %d, %v", mode, errno)
	}
	for _, nodes := range [][]int{{1023}, {0, 1022}} {
		if b, err := Alloc(4096, Options{Nodes: nodes}); err == nil {
			_ = b.Free()
			t.Errorf("nodes %v: no error", nodes)
		} else if !strings.Contains(err.Error(), "does not exist") {
			t.Errorf("nodes %v: %v", nodes, err)
		}
	}
}

func TestLock(t *testing.T) {
	b, err := Alloc(64<<10, Options{Lock: true})
	if err != nil {
		if !strings.Contains(err.Error(), "RLIMIT_MEMLOCK") {
			t.Errorf("error does not name the limit: %v", err)
		}
		return
	}
	defer func() { _ = b.Free() }()
	if !b.Info().Locked {
		t.Error("locked, and not told")
	}
}

func TestFaultedIn(t *testing.T) {
	for _, lazy := range []bool{false, true} {
		for _, backing := range []Backing{Shared, Private} {
			b := alloc(t, 64<<12, Options{Backing: backing, Lazy: lazy})
			resident := make([]byte, 64)
			_, _, errno := unix.Syscall(unix.SYS_MINCORE, b.area.start, b.area.size, uintptr(unsafe.Pointer(&resident[0])))
			if errno != 0 {
				t.Fatal(errno)
			}
			n := 0
			for _, r := range resident {
				n += int(r & 1)
			}
			if lazy && n == 64 || !lazy && n != 64 {
				t.Errorf("lazy %v, backing %d: %d of 64 pages are there", lazy, backing, n)
			}
		}
	}
}

func TestForeignRefusesGoAndGaps(t *testing.T) {
	heap := make([]byte, 1<<20)
	global := &heap[500]
	if _, err := Foreign(uintptr(unsafe.Pointer(global)), 1000); err == nil || !strings.Contains(err.Error(), "Go's memory") {
		t.Errorf("a Go slice: %v", err)
	}
	var local [100]byte
	if _, err := Foreign(uintptr(unsafe.Pointer(&local[0])), 100); err == nil {
		t.Error("a goroutine's stack: no error")
	}
	runtime.KeepAlive(heap)
	b := alloc(t, 12<<12, Options{Backing: Private})
	if err := unix.Mprotect(b.whole()[4<<12:5<<12], unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	start := b.area.start
	if _, err := Foreign(start, 12<<12); err == nil || !strings.Contains(err.Error(), "not readable and writable") {
		t.Errorf("a read-only page inside: %v", err)
	}
	if _, err := Foreign(start, 4<<12); err != nil {
		t.Errorf("before it: %v", err)
	}
	if _, err := Foreign(start+5<<12, 7<<12); err != nil {
		t.Errorf("behind it: %v", err)
	}
	if _, err := Foreign(4096, 100); err == nil || !strings.Contains(err.Error(), "nothing is mapped") {
		t.Errorf("nothing mapped: %v", err)
	}
}

func TestNoDescriptorsLeft(t *testing.T) {
	count := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := count()
	for range 20 {
		b, err := Alloc(4096, Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = Alloc(4096, Options{Nodes: []int{1000}})
		_ = b.Hide()
		_ = b.Free()
		c, err := Alloc(4096, Options{})
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Free()
	}
	if now := count(); now > before {
		t.Errorf("%d descriptors, %d before", now, before)
	}
}

// The system is never asked to fault in more than it has, or the control group may have: it
// would kill a process.
func TestEnough(t *testing.T) {
	system := fstest.MapFS{"proc/meminfo": {Data: []byte("MemAvailable: 1048576 kB\n")}}
	group := fstest.MapFS{
		"proc/meminfo": system["proc/meminfo"], "proc/self/cgroup": {Data: []byte("0::/job\n")},
		"proc/self/mountinfo":              {Data: []byte("35 24 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")},
		"sys/fs/cgroup/job/memory.max":     {Data: []byte("314572800\n")},
		"sys/fs/cgroup/job/memory.current": {Data: []byte("104857600\n")},
	}
	for _, c := range []struct {
		root fs.FS
		size int64
		says string // "": there is enough
	}{
		{system, 1 << 30, ""},
		{system, 1<<30 + 1, "1 GiB of memory are available (MemAvailable in /proc/meminfo): ask for less, or free some"},
		{group, 200 << 20, ""},
		{group, 201 << 20, "200 MiB are left of the 300 MiB that this process's control group may have (/sys/fs/cgroup/job/memory.max): ask for less, or raise that limit"},
		{group, askFrom - 1, ""},
		{fstest.MapFS{}, math.MaxInt64, ""}, // nothing tells
		{os.DirFS("/"), 4096, ""},
		{os.DirFS("/"), math.MaxInt64, "ask for less"},
	} {
		err := enough(c.root, c.size)
		if (err == nil) != (c.says == "") || err != nil && (!errors.Is(err, unix.ENOMEM) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%d bytes: %v, want %q", c.size, err, c.says)
		}
	}
}

// Of large blocks fewer stay hidden: addresses are what is short.
func TestHiddenBytesAreBounded(t *testing.T) {
	tab := NewTable(4)
	defer closeTable(t, tab)
	for range 3 {
		b := &Block{size: maxHiddenBytes/2 + 1, fd: -1, info: Info{Backing: Private}}
		var err error
		if b.area, err = mmap(0, uintptr(b.size), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE, -1); err != nil {
			t.Fatal(err)
		}
		r, err := tab.Add(b, "kv", "", None)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(r.Close(context.Background()), r.Close(context.Background())); err != nil {
			t.Fatal(err)
		}
		if len(tab.hidden) != 1 || tab.hiddenBytes != b.addresses() {
			t.Errorf("%d blocks of %d bytes", len(tab.hidden), tab.hiddenBytes)
		}
	}
}
