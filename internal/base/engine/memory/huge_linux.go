package memory

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

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
		b.note("huge pages: not known how many were given: %v", err)
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
