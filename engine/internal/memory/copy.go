package memory

// Copy copies src to dst as copy does, with streaming stores where the processor
// has them and the bytes are too many to be read back from the cache soon.
func Copy(dst, src []byte) int {
	if min(len(dst), len(src)) < streamBytes {
		return copy(dst, src)
	}
	return Stream(dst, src)
}

// Stream copies as Copy does, for one of many pieces that are too many together:
// with streaming stores from 4 KiB on.
func Stream(dst, src []byte) int {
	n := min(len(dst), len(src))
	if n < minStream || !canStream {
		return copy(dst, src)
	}
	return stream(dst[:n], src[:n])
}

const (
	// streamBytes is from where on streaming pays for a copy of its own: below it
	// the reader mostly finds the bytes in its cache, which a streaming store goes
	// around. Out of DRAM it pays from minStream on (BenchmarkCopy).
	streamBytes = 256 << 10
	minStream   = 4 << 10
)
