package mooncake

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// Handshake frames: u64 length of the rest (little endian), u8 type, JSON. A connection carries one
// request and one answer of the same type.

// frameType says what a frame is about.
type frameType uint8

const (
	frameConnection frameType = 0 // RDMA queue pairs, which we do not have
	frameMetadata   frameType = 1 // the sender's descriptor
	frameNotify     frameType = 2
	frameProbe      frameType = 3
)

const (
	lengthBytes = 8
	// maxRequest is what a peer takes unless it is told otherwise, and what we do.
	maxRequest = 1 << 20
	// maxReply is what we read of a peer that we have asked.
	maxReply = 16 << 20
)

// encodeFrame makes one write of a frame.
func encodeFrame(t frameType, body []byte) []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, lengthBytes+1+len(body)), uint64(1+len(body)))
	b = append(b, byte(t))
	return append(b, body...)
}

// readFrame reads one frame of at most limit bytes. What it announces is believed only as far as
// it arrives: memory grows with the bytes.
func readFrame(r io.Reader, limit int) (frameType, []byte, error) {
	var head [lengthBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint64(head[:])
	if n == 0 || n > uint64(limit) {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes, 1 to %d are read", ErrMalformed, n, limit)
	}
	var b []byte
	for len(b) < int(n) {
		at := len(b)
		step := min(int(n)-at, max(64<<10, at))
		b = slices.Grow(b, step)[:at+step]
		if _, err := io.ReadFull(r, b[at:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return 0, nil, err
		}
	}
	// Old peers send no type: the JSON begins at once, and what begins it is above all types.
	if b[0] > byte(frameProbe) {
		return frameConnection, b, nil
	}
	return frameType(b[0]), b[1:], nil
}
