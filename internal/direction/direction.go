// Package direction says which way an op moves memory. The engine's users, its scheduler, its
// transports and the simulator all mean this type; numbers that stand for it on a wire or in
// another language's calls are translated where they are read and written.
package direction

// Direction is READ or WRITE, as seen from the engine that submits the op.
type Direction uint8

// The directions.
const (
	Write Direction = iota // from the local region to the peer's
	Read                   // from the peer's region to the local one
)

// String is "write" or "read".
func (d Direction) String() string {
	if d == Read {
		return "read"
	}
	return "write"
}
