package record

import (
	"errors"
	"fmt"
)

// What JSON may be like at most that is read from elsewhere: a list of empty elements takes
// hundreds of times its length once it is read, so elements are counted before.
type bounds struct {
	bytes    int // of all
	text     int // of one string, as it is written
	elements int // of all lists together
	depth    int // of lists and objects in each other
}

// check looks at data that may be JSON. What is no JSON may pass: the decoder refuses it.
func (b *bounds) check(data []byte) error {
	if len(data) > b.bytes {
		return fmt.Errorf("%d bytes: at most %d are read", len(data), b.bytes)
	}
	var lists []bool // of what is open: is it a list
	elements := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			end := endOfText(data, i+1)
			if end-i > b.text {
				return fmt.Errorf("a text of %d bytes: at most %d are read", end-i, b.text)
			}
			i = end
		case '[', '{':
			if len(lists) == b.depth {
				return fmt.Errorf("lists and objects in each other: at most %d deep are read", b.depth)
			}
			lists = append(lists, data[i] == '[')
			if data[i] == '[' {
				elements++
			}
		case ']', '}':
			if len(lists) == 0 {
				return errors.New("a closing bracket too many")
			}
			lists = lists[:len(lists)-1]
		case ',':
			if len(lists) > 0 && lists[len(lists)-1] {
				elements++
			}
		}
		if elements > b.elements {
			return fmt.Errorf("more than %d elements of lists, which are not read", b.elements)
		}
	}
	return nil
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
