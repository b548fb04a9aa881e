package document

import (
	"errors"
	"fmt"
)

// Limits bound a document before it is decoded: a list of empty elements takes hundreds of
// times its length once it is read. 0 is no bound.
type Limits struct {
	Bytes    int // of the document
	Text     int // bytes of one string as it is written, its first quote included
	Elements int // of all lists together, a list inside a list included
	Depth    int // of lists and objects in each other

	// CheapLists are the keys of lists whose elements are small once they are read, such as
	// numbers. They are counted apart, up to CheapElements.
	CheapLists    map[string]bool
	CheapElements int
	// Opaque are keys of what stays JSON here, in which elements are not counted: its
	// decoder has limits of its own.
	Opaque map[string]bool
}

// opened is a list or object that is not closed yet.
type opened struct {
	count  *int // of the elements, nil where they are not counted
	opaque bool
}

// Check looks at data that may be JSON, without memory for what is in it. What is no JSON
// may pass: the decoder refuses it.
func (l *Limits) Check(data []byte) error {
	if l.Bytes > 0 && len(data) > l.Bytes {
		return fmt.Errorf("%d bytes: at most %d are read", len(data), l.Bytes)
	}
	var open []opened
	var key []byte // the last string, while only a colon has followed it
	colon := false
	elements, cheap := 0, 0
	for i := 0; i < len(data); i++ {
		c := data[i]
		switch c {
		case ' ', '\t', '\r', '\n':
			continue
		case '"':
			end := endOfText(data, i+1)
			if l.Text > 0 && end-i > l.Text {
				return fmt.Errorf("a text of %d bytes: at most %d are read", end-i, l.Text)
			}
			key, i = data[i+1:end], end
		case '[', '{':
			if l.Depth > 0 && len(open) == l.Depth {
				return fmt.Errorf("lists and objects in each other: at most %d deep are read", l.Depth)
			}
			next := opened{opaque: len(open) > 0 && open[len(open)-1].opaque || colon && l.Opaque[string(key)]}
			switch {
			case c == '{' || next.opaque:
			case colon && l.CheapLists[string(key)]:
				next.count = &cheap
			default:
				next.count = &elements
			}
			open = append(open, next)
			next.add()
		case ']', '}':
			if len(open) == 0 {
				return errors.New("a closing bracket too many")
			}
			open = open[:len(open)-1]
		case ',':
			if len(open) > 0 {
				open[len(open)-1].add()
			}
		}
		colon = c == ':'
		if l.Elements > 0 && elements > l.Elements {
			return fmt.Errorf("more than %d elements of lists, which are not read", l.Elements)
		}
		if l.CheapElements > 0 && cheap > l.CheapElements {
			return fmt.Errorf("more than %d elements of lists of numbers and texts, which are not read", l.CheapElements)
		}
	}
	return nil
}

func (o opened) add() {
	if o.count != nil {
		*o.count++
	}
}

// endOfText is where the text ends that begins at i, or the end of data.
func endOfText(data []byte, i int) int {
	for ; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(data)
}
