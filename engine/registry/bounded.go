package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// bounded is a list that is read element by element, so that a small document of
// very many empty elements cannot make us hold much more than its own size.
type bounded[T any] []T

// UnmarshalJSON leaves the list nil for null.
func (b *bounded[T]) UnmarshalJSON(data []byte) error {
	*b = nil
	if isNull(data) {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := open(dec, '['); err != nil {
		return err
	}
	*b = bounded[T]{}
	for dec.More() {
		if len(*b) == MaxRegions {
			return fmt.Errorf("more than %d elements", MaxRegions)
		}
		var v T
		if err := dec.Decode(&v); err != nil {
			return err
		}
		*b = append(*b, v)
	}
	return nil
}

// UnmarshalJSON reads an object of at most maxKeys keys.
func (k *Keys) UnmarshalJSON(data []byte) error {
	*k = nil
	if isNull(data) {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := open(dec, '{'); err != nil {
		return err
	}
	out := Keys{}
	for n := 0; dec.More(); n++ {
		name, err := dec.Token()
		if err != nil {
			return err
		}
		if n == maxKeys {
			return fmt.Errorf("more than %d keys", maxKeys)
		}
		var value string
		if err := dec.Decode(&value); err != nil {
			return err
		}
		out[name.(string)] = value // a name of an object is a string
	}
	*k = out
	return nil
}

// open reads the bracket that a list or an object begins with.
func open(dec *json.Decoder, want json.Delim) error {
	t, err := dec.Token()
	if err != nil {
		return err
	}
	if t != want {
		return fmt.Errorf("%v: want %v", t, want)
	}
	return nil
}
