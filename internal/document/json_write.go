// Package document reads and writes the documents that topoctl shares with other programs. JSON is
// laid out with an item a line, so that people can read it and two of them diff well, and that of
// others is read within limits. XML of others is read into a tree of elements: depth, elements,
// attributes and the length of values are bounded; entities other than XML's own five, processing
// instructions, comments and document types are not followed. Metrics are written in Prometheus's
// text exposition format.
// Source: prometheus.io/docs/instrumenting/exposition_formats.
package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Line is v as a line of JSON with its end. Characters that HTML gives a meaning stay as
// they are: "x16 -> x8" is legible.
func Line(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Writer writes an object: a field a line, and for lists an item a line. The first error
// sticks, and Bytes returns it.
type Writer struct {
	buf   bytes.Buffer
	enc   *json.Encoder
	open  []byte // the brackets that close what is open
	comma bool   // the next field or item is not the first one
	err   error
}

// NewWriter begins a document, which is an object.
func NewWriter() *Writer {
	w := &Writer{}
	w.enc = json.NewEncoder(&w.buf)
	w.enc.SetEscapeHTML(false)
	w.begin('{', '}')
	return w
}

func (w *Writer) begin(bracket, closing byte) {
	w.buf.WriteByte(bracket)
	w.open = append(w.open, closing)
	w.comma = false
}

// value appends v without the encoder's line end.
func (w *Writer) value(v any) {
	if w.err != nil {
		return
	}
	if w.err = w.enc.Encode(v); w.err == nil {
		w.buf.Truncate(w.buf.Len() - 1)
	}
}

// name begins a field. The first one of an object is on the line of its bracket.
func (w *Writer) name(name string) {
	if w.comma {
		w.buf.WriteString(",\n")
	}
	w.comma = true
	w.value(name)
	w.buf.WriteByte(':')
}

// Field writes a field whose value is on one line.
func (w *Writer) Field(name string, v any) {
	w.name(name)
	w.value(v)
}

// Object begins a field that is an object with a field a line; End ends it.
func (w *Writer) Object(name string) {
	w.name(name)
	w.begin('{', '}')
}

// List begins a field that is a list with an item a line; End ends it.
func (w *Writer) List(name string) {
	w.name(name)
	w.begin('[', ']')
}

// Item writes an item of the open list.
func (w *Writer) Item(v any) {
	if w.comma {
		w.buf.WriteByte(',')
	}
	w.comma = true
	w.buf.WriteByte('\n')
	w.value(v)
}

// ItemWith writes an item that is an object and adds a field at its end.
func (w *Writer) ItemWith(object any, name string, value any) {
	w.Item(object)
	if w.err != nil {
		return
	}
	last := w.buf.Len() - 1
	if w.buf.Bytes()[last] != '}' {
		w.err = fmt.Errorf("%T is no object that %q could be added to", object, name)
		return
	}
	w.buf.Truncate(last)
	if w.buf.Bytes()[last-1] != '{' {
		w.buf.WriteByte(',')
	}
	w.value(name)
	w.buf.WriteByte(':')
	w.value(value)
	w.buf.WriteByte('}')
}

// End ends the list or object that was begun last.
func (w *Writer) End() {
	last := len(w.open) - 1
	if last == 0 {
		panic("document: End without List or Object")
	}
	closing := w.open[last]
	if closing == ']' && w.comma {
		w.buf.WriteByte('\n')
	}
	w.buf.WriteByte(closing)
	w.open, w.comma = w.open[:last], true
}

// Bytes ends the document, its last line included, and returns it. Nothing may be written
// after it.
func (w *Writer) Bytes() ([]byte, error) {
	if w.err != nil {
		return nil, w.err
	}
	if len(w.open) != 1 {
		panic("document: Bytes without End")
	}
	w.buf.WriteString("\n}\n")
	return w.buf.Bytes(), nil
}

// WriteList writes a field that is a list with an item a line; nil is an empty one.
func WriteList[T any](w *Writer, name string, items []T) {
	w.List(name)
	for i := range items {
		w.Item(&items[i])
	}
	w.End()
}

// Layout breaks a JSON object into lines: a key a line, the first one included, and for
// lists that are fields of it an element a line. Keys and values stay as they are written.
func Layout(object []byte) ([]byte, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, object); err != nil {
		return nil, fmt.Errorf("lay out JSON: %w", err)
	}
	data := compact.Bytes()
	if data[0] != '{' {
		return nil, errors.New("lay out JSON: want an object")
	}
	var out []byte
	depth, list := 0, false // whether the field that the text is in is a list
	broken := func() bool { return depth == 1 || depth == 2 && list }
	for i := 0; i < len(data); i++ {
		c := data[i]
		switch c {
		case '"':
			end := endOfText(data, i+1)
			out = append(out, data[i:end+1]...)
			i = end
			continue
		case '{', '[':
			if depth++; depth == 2 {
				list = c == '['
			}
		case '}', ']':
			if broken() && data[i-1] != '{' && data[i-1] != '[' {
				out = append(out, '\n')
			}
			depth--
		}
		out = append(out, c)
		if broken() && (c == ',' || c == '[' && data[i+1] != ']') || c == '{' && depth == 1 {
			out = append(out, '\n')
		}
	}
	return append(out, '\n'), nil
}

// Printable is a document without characters that a terminal would obey, or that it would not show: a JSON encoder
// escapes only the controls below the blank.
func Printable(data []byte) []byte {
	var out []byte
	done := 0
	for i, r := range string(data) {
		if r < 0x7f || unicode.IsPrint(r) {
			continue
		}
		out = append(out, data[done:i]...)
		for _, unit := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
		done = i + utf8.RuneLen(r)
	}
	if done == 0 {
		return data
	}
	return append(out, data[done:]...)
}
