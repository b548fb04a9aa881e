package kv

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// maxLine bounds a line of a trace. The blocks of the longest prompt fit with room to spare.
const maxLine = 1 << 20

// maxBlock leaves names above those of a trace for requests that have none.
const maxBlock = 1 << 62

// record is a line of a trace. Pointers tell what is missing from what is 0.
type record struct {
	Timestamp *json.Number `json:"timestamp"`
	Input     *int64       `json:"input_length"`
	Output    *int64       `json:"output_length"`
	Blocks    []int64      `json:"hash_ids"`
}

// ReadTrace reads Mooncake's public trace format: lines of JSON with timestamp (ms since the
// start, in order, fractions allowed), input_length and output_length (tokens) and hash_ids (a
// name for each block of 512 tokens of the prompt, the last one may be partly filled; left
// out where prompts share nothing). Other keys are ignored. Requests have the number of their
// line. Errors name the line.
func ReadTrace(r io.Reader, name string) (*Workload, error) {
	w := &Workload{Name: name}
	lines, line := bufio.NewScanner(r), 1
	lines.Buffer(nil, maxLine)
	for ; lines.Scan(); line++ {
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		if err := add(w, text, line); err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, fmt.Errorf("line %d: longer than %d bytes", line, maxLine)
	case err != nil:
		return nil, fmt.Errorf("line %d: %w", line, err)
	}
	if len(w.Requests) == 0 {
		return nil, errors.New("the trace has no requests")
	}
	return w, nil
}

// add reads a line.
func add(w *Workload, text []byte, line int) error {
	if len(w.Requests) == MaxRequests {
		return fmt.Errorf("more than %d requests", MaxRequests)
	}
	var rec record
	if err := json.Unmarshal(text, &rec); err != nil {
		return plain(err)
	}
	arrive, err := arriveNS(rec.Timestamp)
	if err != nil {
		return err
	}
	if n := len(w.Requests); n > 0 && arrive < w.Requests[n-1].ArriveNS {
		before := &w.Requests[n-1]
		return fmt.Errorf("timestamp %s is before that of line %d, %s: sort the trace by timestamp",
			formatMS(arrive), before.Line, formatMS(before.ArriveNS))
	}
	input, err := tokens("input_length", rec.Input)
	if err != nil {
		return err
	}
	output, err := tokens("output_length", rec.Output)
	if err != nil {
		return err
	}
	if want := blocks(input); rec.Blocks != nil && len(rec.Blocks) != want {
		return fmt.Errorf("%d hash_ids for %d tokens: blocks of %d tokens make %d", len(rec.Blocks), input, BlockTokens, want)
	}
	for _, b := range rec.Blocks {
		if b > maxBlock {
			return fmt.Errorf("hash_ids holds %d: at most %d is read", b, int64(maxBlock))
		}
	}
	w.Requests = append(w.Requests, Request{ID: len(w.Requests), ArriveNS: arrive, Input: input, Output: output, Blocks: rec.Blocks, Line: line})
	return nil
}

func blocks(tokens int) int { return (tokens + BlockTokens - 1) / BlockTokens }

func tokens(key string, n *int64) (int, error) {
	if n == nil {
		return 0, fmt.Errorf("%s is missing", key)
	}
	if *n < 1 || *n > MaxTokens {
		return 0, fmt.Errorf("%s is %d: want 1 to %d tokens", key, *n, MaxTokens)
	}
	return int(*n), nil
}

func arriveNS(n *json.Number) (int64, error) {
	if n == nil {
		return 0, errors.New("timestamp is missing")
	}
	ms, err := n.Float64()
	if err != nil || !(ms >= 0 && ms <= maxSpanNS/1e6) {
		return 0, fmt.Errorf("timestamp is not between 0 and %.0f ms since the trace began", maxSpanNS/1e6)
	}
	return int64(math.Round(ms * 1e6)), nil
}

// plain says what is wrong with a line in words that do not depend on Go, and without the
// line's own.
func plain(err error) error {
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		found, _, _ := strings.Cut(wrong.Value, " ") // "number 1.5"
		if wrong.Field == "" {
			return fmt.Errorf("a JSON %s where an object is expected", found)
		}
		if found == "number" {
			return fmt.Errorf("%s is not an integer of 64 bits", wrong.Field)
		}
		return fmt.Errorf("%s: a JSON %s where a number is expected", wrong.Field, found)
	}
	if wrong := (*json.SyntaxError)(nil); errors.As(err, &wrong) {
		return fmt.Errorf("not JSON, at byte %d", wrong.Offset)
	}
	return errors.New("not a JSON object of timestamp, input_length, output_length and hash_ids")
}

// formatMS writes a time in milliseconds with as many decimals as it needs.
func formatMS(ns int64) string {
	whole, rest := ns/1e6, ns%1e6
	if rest == 0 {
		return strconv.FormatInt(whole, 10)
	}
	return strings.TrimRight(fmt.Sprintf("%d.%06d", whole, rest), "0")
}
