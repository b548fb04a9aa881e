//go:build !amd64

package memory

// canStream: only amd64 has an own copy; elsewhere the runtime's is as good as
// what is known.
const canStream = false

func stream(dst, src []byte) int { return copy(dst, src) }
