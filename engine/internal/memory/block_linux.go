package memory

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/internal/cpuset"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/units"
)

const (
	mib2 = 2 << 20
	gib1 = 1 << 30
	// sizeSeals keep a file's size: a peer that has mapped it can not be hit by
	// SIGBUS when somebody cuts it.
	sizeSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
)

func basePage() int64 { return int64(os.Getpagesize()) }

func allocate(size int64, o Options) (*Block, error) {
	page, hugeFlags := pageSize(o.Pages)
	length := roundUp(size, page)
	b := &Block{size: size, fd: -1, info: Info{Backing: o.Backing, PageBytes: page}}
	flags := unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	if o.Backing == Shared {
		fd, err := newFile(size, length, hugeFlags)
		if err != nil {
			return nil, err
		}
		b.fd, flags = fd, unix.MAP_SHARED
	} else if hugeFlags != 0 {
		flags |= unix.MAP_HUGETLB | hugeFlags
	}
	align := page
	if o.Pages == Huge {
		align = mib2
	}
	var err error
	b.area, err = mapAligned(b.fd, length, align, flags)
	if err != nil {
		_ = b.closeFile()
		return nil, poolError(err, o.Pages)
	}
	b.bytes = bytesAt(b.area.start, size)
	if err := b.prepare(o); err != nil {
		_ = b.Free()
		return nil, err
	}
	return b, nil
}

// pageSize is the page that the mapping is made of, and what asks the hugetlb
// pool for it (the same bits in memfd_create and mmap).
func pageSize(p Pages) (page int64, flags int) {
	switch p {
	case Huge2MiB:
		return mib2, unix.MAP_HUGE_2MB
	case Huge1GiB:
		return gib1, unix.MAP_HUGE_1GB
	default:
		return basePage(), 0
	}
}

// newFile makes the memfd. A file of huge pages has whole pages only.
func newFile(size, length int64, hugeFlags int) (int, error) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	if hugeFlags != 0 {
		flags |= unix.MFD_HUGETLB | hugeFlags
		size = length
	}
	fd, err := unix.MemfdCreate("topoctl", flags)
	if err != nil {
		return -1, fmt.Errorf("memfd_create: %w", err)
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("memfd: size it: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sizeSeals); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("memfd: seal it: %w", err)
	}
	return fd, nil
}

// mapAligned maps length bytes at a multiple of align: a huge page can only
// stand there. Addresses are reserved first, and what is too much given back.
func mapAligned(fd int, length, align int64, flags int) (area, error) {
	prot := unix.PROT_READ | unix.PROT_WRITE
	if align <= basePage() || flags&unix.MAP_HUGETLB != 0 || fd >= 0 && align == gib1 {
		return mmap(0, uintptr(length), prot, flags, fd)
	}
	room, err := mmap(0, uintptr(length+align), unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE, -1)
	if err != nil {
		return area{}, err
	}
	start := uintptr(roundUp(int64(room.start), align))
	got, err := mmap(start, uintptr(length), prot, flags|unix.MAP_FIXED, fd)
	if err != nil {
		return area{}, errors.Join(err, room.unmap())
	}
	before := area{start: room.start, size: start - room.start}
	end := start + uintptr(length)
	after := area{start: end, size: room.start + room.size - end}
	if err := errors.Join(before.unmap(), after.unmap()); err != nil {
		return area{}, errors.Join(err, got.unmap())
	}
	return got, nil
}

func mmap(at, length uintptr, prot, flags, fd int) (area, error) {
	p, err := unix.MmapPtr(fd, 0, pointer(at), length, prot, flags)
	if err != nil {
		return area{}, fmt.Errorf("mmap: %w", err)
	}
	return area{start: uintptr(p), size: length}, nil
}

func (a area) unmap() error {
	if a.size == 0 {
		return nil
	}
	if err := unix.MunmapPtr(pointer(a.start), a.size); err != nil {
		return fmt.Errorf("munmap: %w", err)
	}
	return nil
}

// hide puts inaccessible anonymous memory in the range's place, in one step: at
// no time is the range free for somebody else's mmap.
func (a area) hide() error {
	_, err := mmap(a.start, a.size, unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE|unix.MAP_FIXED, -1)
	return err
}

// poolError says what a failed mapping of pool pages means.
func poolError(err error, p Pages) error {
	if p != Huge2MiB && p != Huge1GiB || !errors.Is(err, unix.ENOMEM) {
		return err
	}
	size, _ := pageSize(p)
	return fmt.Errorf("the pool has not enough free huge pages of %d KiB (see /sys/kernel/mm/hugepages/hugepages-%dkB/nr_hugepages): %w",
		size>>10, size>>10, err)
}

// prepare binds, advises, faults in and locks a fresh mapping, in this order:
// pages are placed when they are faulted in.
func (b *Block) prepare(o Options) error {
	if err := b.bind(o.Nodes); err != nil {
		return err
	}
	if o.Pages == Huge {
		b.advise()
	}
	if !o.Lazy {
		if o.Pages != Huge2MiB && o.Pages != Huge1GiB { // their pool has said yes already
			if err := enough(os.DirFS("/"), int64(b.area.size)); err != nil {
				return err
			}
		}
		if err := b.populate(); err != nil {
			return err
		}
		if o.Pages == Huge {
			b.countHuge()
		}
	}
	if !o.Lock {
		return nil
	}
	if err := unix.Mlock(b.whole()); err != nil {
		var limit unix.Rlimit
		_ = unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit)
		return fmt.Errorf("mlock: %w (RLIMIT_MEMLOCK, ulimit -l, is %d bytes)", err, limit.Cur)
	}
	b.info.Locked = true
	return nil
}

// whole are the block's bytes with the rest of its last page.
func (b *Block) whole() []byte { return bytesAt(b.area.start, int64(b.area.size)) }

// populate faults all pages in, for writing.
func (b *Block) populate() error {
	err := unix.Madvise(b.whole(), unix.MADV_POPULATE_WRITE)
	for errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
		err = unix.Madvise(b.whole(), unix.MADV_POPULATE_WRITE)
	}
	if errors.Is(err, unix.EINVAL) { // before Linux 5.14
		touch(b.whole(), basePage())
		return nil
	}
	if err != nil {
		return fmt.Errorf("fault the pages in (madvise MADV_POPULATE_WRITE): %w", err)
	}
	return nil
}

// mapFile is Map on Linux.
func mapFile(fd int, size int64, write bool) (*Block, error) {
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: F_GET_SEALS: %w", ErrUnsealed, err)
	}
	if got&unix.F_SEAL_SHRINK == 0 {
		return nil, fmt.Errorf("%w against shrinking (seals %#x)", ErrUnsealed, got)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("fstat: %w", err)
	}
	page := max(int64(st.Blksize), basePage()) //nolint:unconvert // arm64 has 32 bits
	want := size
	if page > basePage() { // a file of huge pages has whole ones only
		want = roundUp(size, page)
	}
	if page&(page-1) != 0 || st.Size != want {
		return nil, fmt.Errorf("its file has %d bytes in pages of %d", st.Size, page)
	}
	prot := unix.PROT_READ
	if write {
		prot |= unix.PROT_WRITE
	}
	a, err := mmap(0, uintptr(roundUp(size, page)), prot, unix.MAP_SHARED, fd)
	if err != nil {
		return nil, err
	}
	return &Block{
		bytes: bytesAt(a.start, size),
		size:  size,
		area:  a,
		fd:    -1,
		info:  Info{Backing: Shared, PageBytes: page},
	}, nil
}

// reopen opens a file anew, so that a descriptor for reading is one: a duplicate
// would keep the right to write.
func reopen(fd int, write bool) (int, error) {
	mode := unix.O_RDONLY
	if write {
		mode = unix.O_RDWR
	}
	return unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), mode|unix.O_CLOEXEC, 0)
}

// seal is for good: no peer that has a descriptor of the file, however it was
// opened, can write what it was not granted. (A descriptor for reading alone
// would not do: /proc/self/fd opens it again for writing.) Our own mapping is
// older than the seal and stays writable.
func (b *Block) seal(grant Grant) error {
	if b.fd < 0 {
		return nil
	}
	add := unix.F_SEAL_SEAL
	if grant&PeerWrite == 0 {
		add |= unix.F_SEAL_FUTURE_WRITE
	}
	err := addSeals(b.fd, add)
	if errors.Is(err, unix.EINVAL) && grant&PeerWrite == 0 {
		// Before Linux 5.1. A file that peers could write to is given to none of them.
		b.note("%s", noFutureWrite)
		return b.closeFile()
	}
	if err != nil {
		return fmt.Errorf("seal the memfd: %w", err)
	}
	return nil
}

// noFutureWrite says why memory that was made to be shared is not.
const noFutureWrite = "not in shared memory: peers may only read it, and this kernel, older than Linux 5.1, cannot keep them from writing"

// addSeals is fcntl's; tests have older kernels.
var addSeals = func(fd, seals int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	return err
}

func (b *Block) closeFile() error {
	if b.fd < 0 {
		return nil
	}
	err := unix.Close(b.fd)
	b.fd = -1
	if err != nil {
		return pkgerr.Errorf("memory", "close the memfd: %w", err)
	}
	return nil
}

// bind has the pages placed on the nodes: one binds, several interleave.
func (b *Block) bind(nodes []int) error {
	if len(nodes) == 0 {
		return nil
	}
	var mask [(maxNode + 64) / 64]uint64
	for _, n := range nodes {
		// The kernel drops nodes that do not exist from a mask with others.
		_, err := os.Stat(fmt.Sprintf("/sys/devices/system/node/node%d", n))
		if _, sysfs := os.Stat("/sys/devices/system/node"); err != nil && sysfs == nil {
			return fmt.Errorf("NUMA node %d does not exist", n)
		}
		mask[n/64] |= 1 << (n % 64)
	}
	policy := unix.MPOL_BIND
	if len(nodes) > 1 {
		policy = unix.MPOL_INTERLEAVE
	}
	// The kernel takes one less than maxnode bits.
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, b.area.start, b.area.size, uintptr(policy),
		uintptr(unsafe.Pointer(&mask[0])), uintptr(len(mask)*64+1), 0)
	if errno == 0 {
		b.info.Nodes = nodes
		return nil
	}
	if errors.Is(errno, unix.ENOSYS) && slices.Equal(nodes, []int{0}) {
		b.note("NUMA: this kernel has one node and binds nothing")
		return nil
	}
	if errors.Is(errno, unix.EPERM) {
		return fmt.Errorf("bind to NUMA nodes %v: mbind: %w (containers need CAP_SYS_NICE or a seccomp profile that allows it)", nodes, errno)
	}
	return fmt.Errorf("bind to NUMA nodes %v: mbind: %w (not online, or not in this process's cpuset)", nodes, errno)
}

// advise asks for transparent huge pages.
func (b *Block) advise() {
	if err := unix.Madvise(b.whole(), unix.MADV_HUGEPAGE); err != nil {
		b.note("huge pages: madvise MADV_HUGEPAGE: %v", err)
	}
}

// countHuge looks up how much of the block the system gave huge pages for.
func (b *Block) countHuge() {
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		b.note("huge pages: cannot tell how many were given: %v", err)
		return
	}
	want := int64(b.area.size) / mib2 * mib2
	got := min(hugeBytes(smaps, b.area), want)
	if got > 0 && got >= int64(b.area.size)/2 {
		b.info.PageBytes = mib2
	}
	if got < want || want == 0 {
		why := "no huge page was free, or transparent_hugepage/enabled is never"
		if b.info.Backing == Shared {
			why = "transparent_hugepage/shmem_enabled says " + setting("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
		}
		if want == 0 {
			why = "the block is smaller than one"
		}
		b.note("huge pages: given for %d of %d bytes: %s", got, b.area.size, why)
	}
}

// note keeps what was not given.
func (b *Block) note(format string, args ...any) {
	b.info.Notes = append(b.info.Notes, fmt.Sprintf(format, args...))
}

// setting reads a choice of sysfs: "always within_size [never]" is never.
func setting(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	if _, after, ok := bytes.Cut(text, []byte("[")); ok {
		if chosen, _, ok := bytes.Cut(after, []byte("]")); ok {
			return string(chosen)
		}
	}
	return string(bytes.TrimSpace(text))
}

// Left is how much memory this process can have, by the system and its control groups.
func Left() (bytes int64, known bool) {
	m, ok := cpuset.MemoryLeft(os.DirFS("/"))
	return m.Left, ok
}

// askFrom is from how many bytes on the system is asked whether it has them.
const askFrom = 64 << 20

// enough refuses to fault in what this process cannot have: the system does not say no to
// that but kills a process, of its choice. Where nothing tells how much there is, all is
// well. root is the tree of the system's files.
func enough(root fs.FS, size int64) error {
	if size < askFrom {
		return nil
	}
	m, ok := cpuset.MemoryLeft(root)
	switch {
	case !ok || size <= m.Left:
		return nil
	case m.Limit == 0:
		return fmt.Errorf("%w: %s of memory are available (MemAvailable in %s): ask for less, or free some",
			unix.ENOMEM, units.Bytes(m.Left), m.File)
	}
	return fmt.Errorf("%w: %s are left of the %s that this process's control group may have (%s): ask for less, or raise that limit",
		unix.ENOMEM, units.Bytes(m.Left), units.Bytes(m.Limit), m.File)
}
