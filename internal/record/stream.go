package record

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Writer writes a recording, each record at once, so that one that is cut off has all but its
// last line.
type Writer struct {
	w      io.Writer
	lastNS int64
	begun  bool
	err    error
}

// NewWriter begins a recording.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write writes a record; the first must be the start. A time before that of the record before
// is written as that one: news from several sources may overtake each other. A record that
// could not be read back is refused, and the recording goes on; what could not be written ends
// it.
func (w *Writer) Write(r *Record) error {
	if w.err != nil {
		return w.err
	}
	if (r.Start != nil) == w.begun {
		return pkgerr.New("record", "want a start first, and once")
	}
	n := *r
	n.AtNS = max(n.AtNS, w.lastNS)
	data, err := n.Encode()
	if err != nil {
		return err
	}
	w.begun, w.lastNS = true, n.AtNS
	if _, err := w.w.Write(data); err != nil {
		w.err = pkgerr.Errorf("record", "write: %w", err)
	}
	return w.err
}

// Broken says that a write failed: nothing more can be written.
func (w *Writer) Broken() bool { return w.err != nil }

// Reader reads a recording, whoever made it.
type Reader struct {
	in     *bufio.Reader
	n      int // of the line
	lastNS int64
	begun  bool
	ended  bool
	note   string
}

// NewReader begins to read a recording.
func NewReader(r io.Reader) *Reader { return &Reader{in: bufio.NewReaderSize(r, 1<<16)} }

// Note says what was lost at the end, "" nothing.
func (r *Reader) Note() string { return r.note }

// Read gives the next record, io.EOF after the last one. Records whose news is not known are
// left out. A last line without line end that cannot be read is lost, and Note says so: the
// recorder was killed. Every other line that cannot be read is an error, which names it, as is
// time that goes back: a Writer writes none, so these are two recordings in one, or it was
// edited.
func (r *Reader) Read() (*Record, error) {
	for !r.ended {
		text, err := r.line()
		r.n++
		r.ended = errors.Is(err, io.EOF)
		if err != nil && !r.ended {
			return nil, pkgerr.Errorf("record", "line %d: %w", r.n, err)
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		rec, err := decode(text)
		if err != nil && r.ended && r.begun {
			r.note = fmt.Sprintf("the recording ends in the middle of line %d, which is lost", r.n)
			break
		}
		if err == nil {
			err = r.checkOrder(rec)
		}
		if err != nil {
			r.ended = true
			return nil, pkgerr.Errorf("record", "line %d: %w", r.n, err)
		}
		if !rec.empty() {
			return rec, nil
		}
	}
	if !r.begun {
		return nil, pkgerr.New("record", "nothing in it: no recording")
	}
	return nil, io.EOF
}

// checkOrder checks a record's place.
func (r *Reader) checkOrder(rec *Record) error {
	switch {
	case (rec.Start != nil) == r.begun && r.begun:
		return errors.New("a second start: two recordings in one")
	case (rec.Start != nil) == r.begun:
		return errors.New("no start before it: the beginning of the recording is missing")
	case rec.AtNS < r.lastNS:
		return fmt.Errorf("at_ns %d after %d: time goes back", rec.AtNS, r.lastNS)
	}
	r.begun, r.lastNS = true, rec.AtNS
	return nil
}

// line reads up to a line end; io.EOF comes with what follows the last one.
func (r *Reader) line() ([]byte, error) {
	var text []byte
	for {
		part, err := r.in.ReadSlice('\n')
		if len(text)+len(part) > lineLimits.Bytes {
			return nil, fmt.Errorf("longer than %d bytes", lineLimits.Bytes)
		}
		text = append(text, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, err
		}
	}
}
