package mooncake

import (
	"encoding/binary"
	"fmt"
)

// Requests on data connections: size (u64), address (u64), opcode (u8), 7 bytes of anything; little
// endian. Version 2, which a bit of the opcode says, has an answer of 8 bytes: of a READ before its
// bytes, of a WRITE when all bytes are in the memory. Version 1 has none.
const (
	headerBytes = 24
	statusBytes = 8

	opRead  = 0x00
	opWrite = 0x01
	opV2    = 0x80
)

// header is a request.
type header struct {
	size, address uint64
	write         bool
	v2            bool
}

func (h *header) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, h.size)
	b = binary.LittleEndian.AppendUint64(b, h.address)
	op := byte(opRead)
	if h.write {
		op = opWrite
	}
	if h.v2 {
		op |= opV2
	}
	return append(b, op, 0, 0, 0, 0, 0, 0, 0)
}

// parseHeader reads headerBytes bytes. A range that goes around the end of the address space or is
// empty is refused here.
func parseHeader(b []byte) (header, error) {
	h := header{size: binary.LittleEndian.Uint64(b), address: binary.LittleEndian.Uint64(b[8:])}
	op := b[16]
	h.v2 = op&opV2 != 0
	switch op &^ opV2 {
	case opRead:
	case opWrite:
		h.write = true
	default:
		return h, fmt.Errorf("%w: opcode %#x", ErrMalformed, op)
	}
	if !(Range{h.address, h.size}).valid() {
		return h, fmt.Errorf("%w: %d bytes at %#x", ErrMalformed, h.size, h.address)
	}
	return h, nil
}

// status is the answer of version 2.
type status uint64

const (
	statusMagic    status = 0x4D435456_00000000 // "MCTV" in the high half
	statusOK              = statusMagic
	statusRejected        = statusMagic | 1 // the address is not offered
)

func (s status) append(b []byte) []byte { return binary.LittleEndian.AppendUint64(b, uint64(s)) }

// parseStatus reads statusBytes bytes.
func parseStatus(b []byte) (status, error) {
	s := status(binary.LittleEndian.Uint64(b))
	if s>>32 != statusMagic>>32 {
		return 0, fmt.Errorf("%w: a status of %#x", ErrMalformed, uint64(s))
	}
	return s, nil
}
