package fabric

import (
	"encoding/json"
	"fmt"
)

// Bounds of what is decoded: `{},` has three bytes, and what becomes of it hundreds.
const (
	maxEntries       = 4 * maxJobs // of all lists of a request
	maxAnswerEntries = 1 << 16     // of those of an answer
	maxPlain         = 1 << 18     // of plain lists
	maxDepth         = 64
)

// plainLists are lists of numbers, texts and samples, whose entries are small here. They are the
// keys of such lists alone.
var plainLists = map[string]bool{
	"samples": true, "samples_bytes_per_sec": true, "sizes_bytes": true, "path": true, "addresses": true, "notes": true,
}

// rawKey is the key of what stays JSON here: it has a decoder with limits of its own.
const rawKey = "topology"

// decode reads JSON of a peer whose lists have at most so many entries, those of plain ones
// aside.
func decode(data []byte, most int, to any) error {
	if err := checkEntries(data, most); err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}

// checkEntries counts what is in lists, without memory for it. What is no JSON is
// refused later, before any of it is decoded.
func checkEntries(data []byte, most int) error {
	var entries, plain, none int
	var open [maxDepth]*int // lists and objects: what counts their entries
	open[0] = &none
	depth, raw := 0, 0
	var key []byte  // the string before
	last := byte(0) // what came before, spaces aside
	for i := 0; i < len(data); i++ {
		switch c := data[i]; c {
		case ' ', '\t', '\r', '\n':
			continue
		case '"':
			from := i + 1
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
			key = data[from:min(i, len(data))]
		case '[', '{':
			if depth++; depth >= maxDepth {
				return fmt.Errorf("more than %d levels", maxDepth)
			}
			if raw == 0 && last == ':' && string(key) == rawKey {
				raw = depth
			}
			switch {
			case c == '{' || raw > 0:
				open[depth] = &none
			case last == ':' && plainLists[string(key)]:
				open[depth] = &plain
			default:
				open[depth] = &entries
			}
			*open[depth]++
		case ']', '}':
			if depth == raw {
				raw = 0
			}
			depth = max(0, depth-1)
		case ',':
			*open[depth]++
		}
		if entries > most || plain > maxPlain {
			return fmt.Errorf("more than %d entries in lists, or %d in plain ones", most, maxPlain)
		}
		last = data[min(i, len(data)-1)]
	}
	return nil
}
