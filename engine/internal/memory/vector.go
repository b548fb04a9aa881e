package memory

// MaxVector is how many pieces one system call takes.
const MaxVector = 1024

// Vector is a list of pieces of memory for one system call that reads or writes
// them all. It is made once and used again without allocating. Only what it is
// used for keeps the memory in place: the caller holds pins of mapped memory.
type Vector struct {
	pieces [][]byte
	iov    []iovec // the same as the system call wants it
	first  int
	bytes  int
}

// NewVector makes a vector for at most pieces pieces, up to MaxVector.
func NewVector(pieces int) *Vector {
	pieces = min(pieces, MaxVector)
	return &Vector{pieces: make([][]byte, 0, pieces), iov: make([]iovec, 0, pieces)}
}

// Reset empties the vector.
func (v *Vector) Reset() {
	v.pieces, v.iov, v.first, v.bytes = v.pieces[:0], v.iov[:0], 0, 0
}

// Room is how many pieces can be added.
func (v *Vector) Room() int { return cap(v.pieces) - len(v.pieces) }

// Bytes is what is left to be read or written.
func (v *Vector) Bytes() int { return v.bytes }

// Add appends a piece; there must be Room. Empty ones are left out.
func (v *Vector) Add(b []byte) {
	if len(b) == 0 {
		return
	}
	i := len(v.pieces)
	v.pieces = v.pieces[:i+1]
	v.iov = v.iov[:i+1]
	v.bytes += len(b)
	v.set(i, b)
}

func (v *Vector) set(i int, b []byte) {
	v.pieces[i] = b
	v.iov[i].Base = &b[0]
	v.iov[i].SetLen(len(b))
}

// Piece is a piece that is left, counted from 0; nil where there are fewer.
func (v *Vector) Piece(i int) []byte {
	if i >= len(v.pieces)-v.first {
		return nil
	}
	return v.pieces[v.first+i]
}

// Advance takes n bytes off the front, at most Bytes.
func (v *Vector) Advance(n int) {
	v.bytes -= n
	for n > 0 {
		b := v.pieces[v.first]
		if n < len(b) {
			v.set(v.first, b[n:])
			return
		}
		n -= len(b)
		v.first++
	}
}
