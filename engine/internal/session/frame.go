package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Session messages: length of the rest (4 bytes), type (1), fields.
const (
	msgSync   uint8 = 1 // first on every connection, both ways
	msgCall   uint8 = 2
	msgAnswer uint8 = 3
	msgAck    uint8 = 4
	msgPing   uint8 = 5
	msgPong   uint8 = 6
	msgBye    uint8 = 7

	frameHead   = 5
	callHead    = 10 // number, method
	answerHead  = 9  // number, outcome
	readAtFirst = 64 << 10
)

// Outcomes of calls.
const (
	outcomeOK    uint8 = 0
	outcomeError uint8 = 1
	outcomeBusy  uint8 = 2 // it did not run: there was no memory for it
	outcomeLimit uint8 = 3 // an error, by a limit
)

// message is one session message. Which fields it has depends on its type.
type message struct {
	kind    uint8
	number  uint64 // call, answer; generation of sync; value of ping and pong
	method  uint16
	outcome uint8
	body    []byte   // call, answer
	numbers []uint64 // sync: calls that wait for an answer, ascending; ack: answers that came
	refused error    // of the bounds: the body was not kept
}

// appendHead appends all of a message but the body.
func (m *message) appendHead(b []byte) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0, m.kind)
	switch m.kind {
	case msgCall:
		b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint64(b, m.number), m.method)
	case msgAnswer:
		b = append(binary.BigEndian.AppendUint64(b, m.number), m.outcome)
	case msgPing, msgPong:
		b = binary.BigEndian.AppendUint64(b, m.number)
	case msgSync:
		b = appendNumbers(binary.BigEndian.AppendUint64(b, m.number), m.numbers)
	case msgAck:
		b = appendNumbers(b, m.numbers)
	case msgBye:
		if m.number != 0 {
			b = binary.BigEndian.AppendUint64(b, m.number)
		}
	}
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4+len(m.body)))
	return b
}

func appendNumbers(b []byte, numbers []uint64) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(numbers)))
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

// bounds are what a reader of messages takes.
type bounds struct {
	body  int // bytes of a call's or an answer's body
	calls int // numbers of a sync or an ack
	// admit is asked about a call or an answer before its body is read; with an error the body
	// is passed over. nil: all are read.
	admit func(m *message, body int) error
}

// rest is the largest length that a message of this type may announce.
func (l bounds) rest(kind uint8) int {
	switch kind {
	case msgCall:
		return 1 + callHead + l.body
	case msgAnswer:
		return 1 + answerHead + l.body
	case msgSync:
		return 1 + 8 + 4 + 8*l.calls
	case msgAck:
		return 1 + 4 + 8*l.calls
	case msgPing, msgPong, msgBye:
		return 1 + 8
	}
	return 0
}

// oversizeError says that the peer sent more than we take. It would send it again over the next
// connection.
type oversizeError struct{ bytes, most int64 }

func (e *oversizeError) Error() string {
	return fmt.Sprintf("%v: the peer sent a message of %d bytes, and at most %d are taken", ErrEnded, e.bytes, e.most)
}

func (e *oversizeError) Unwrap() []error { return []error{ErrEnded, errMalformed} }

// readMessage reads one message. What the peer announces is believed only as far
// as it arrives: memory grows with the bytes.
func readMessage(r io.Reader, l bounds) (message, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return message{}, err
	}
	n := binary.BigEndian.Uint32(head[:])
	kind := head[4]
	if (kind == msgCall || kind == msgAnswer) && int64(n) > int64(l.rest(kind)) {
		return message{}, &oversizeError{int64(n), int64(l.rest(kind))}
	}
	if n < 1 || int64(n) > int64(l.rest(kind)) {
		return message{}, fmt.Errorf("%w: type %d with %d bytes", errMalformed, kind, n)
	}
	before := l.rest(kind) - 1 - l.body // the fields of a call or an answer before the body
	if l.admit == nil || kind != msgCall && kind != msgAnswer || int(n)-1 < before {
		rest, err := readGrowing(r, int(n)-1)
		if err != nil {
			return message{}, err
		}
		return parseMessage(kind, rest, l)
	}
	fields, err := readGrowing(r, before)
	if err != nil {
		return message{}, err
	}
	m, err := parseMessage(kind, fields, l)
	if err != nil {
		return m, err
	}
	body := int(n) - 1 - before
	if m.refused = l.admit(&m, body); m.refused != nil {
		_, err = io.CopyN(io.Discard, r, int64(body))
	} else {
		m.body, err = readGrowing(r, body)
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return m, err
}

func readGrowing(r io.Reader, n int) ([]byte, error) {
	var b []byte
	for len(b) < n {
		at := len(b)
		step := min(n-at, max(readAtFirst, at))
		b = slices.Grow(b, step)[:at+step]
		if _, err := io.ReadFull(r, b[at:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return b, nil
}

// parseMessage reads what follows the type. The body is a part of rest.
func parseMessage(kind uint8, rest []byte, l bounds) (message, error) {
	m := message{kind: kind}
	p := parser{b: rest}
	switch kind {
	case msgCall:
		p.fields(&m.number, &m.method)
		m.body = p.b
	case msgAnswer:
		p.fields(&m.number, &m.outcome)
		m.body = p.b
	case msgPing, msgPong:
		p.fields(&m.number)
	case msgSync:
		p.fields(&m.number)
		m.numbers = p.numbers(l.calls)
		for i := 1; i < len(m.numbers); i++ {
			p.bad = p.bad || m.numbers[i] <= m.numbers[i-1]
		}
	case msgAck:
		m.numbers = p.numbers(l.calls)
	case msgBye:
		if len(rest) == 8 {
			p.fields(&m.number)
		}
	default:
		p.bad = true
	}
	if p.bad || len(m.body) > l.body {
		return message{}, fmt.Errorf("%w: type %d", errMalformed, kind)
	}
	return m, nil
}

func (p *parser) numbers(most int) []uint64 {
	var n uint32
	p.fields(&n)
	if p.bad || int64(n) > int64(most) || int64(n)*8 != int64(len(p.b)) {
		p.bad = true
		return nil
	}
	out := make([]uint64, n)
	p.fields(out)
	return out
}
