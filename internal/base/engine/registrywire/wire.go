// Package registrywire is what topoctl and a registry's program (topoctl-registry-SCHEME) say to each
// other: lines of JSON, requests one way and answers the other. docs/registry.md specifies it.
package registrywire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/internal/base/jsontext"
	"github.com/topoctl/topoctl/internal/base/text"
)

// Protocol is what the program's first line names.
const Protocol = "topoctl.registry/v1"

// What is read of the other side.
const (
	MaxLine = 1 << 20 // bytes of a line with its end
	// MaxRecords is how many records of a listing are taken.
	MaxRecords = 1 << 14
	maxText    = 4096 // bytes of an error or a URL
)

// AliveEvery is how often topoctl says that it is alive; without a line for AliveTime the program renews
// no record, until there is one again.
const (
	AliveEvery = 500 * time.Millisecond
	AliveTime  = 2 * time.Second
)

// What a request asks for.
const (
	Open     = "open"      // URL: first, once
	Lookup   = "lookup"    // Name: a record
	List     = "list"      // all records, then Synced
	Watch    = "watch"     // Name: records as they change, until Gone
	WatchAll = "watch-all" // all records, Synced, then changes, each followed by Synced
	Publish  = "publish"   // Record: Done, and later perhaps Lost
	Release  = "release"   // Of: gives up what was published
	Cancel   = "cancel"    // Of: ends a request; it has no answer of its own
	Alive    = "alive"     // answered by Alive
	Close    = "close"     // gives up everything
)

// Request is a line to the program.
type Request struct {
	ID     uint64           `json:"id,omitempty"` // above 0, never twice; alive and cancel have none
	Do     string           `json:"do"`
	Of     uint64           `json:"of,omitempty"`
	URL    string           `json:"url,omitempty"`
	Name   string           `json:"name,omitempty"`
	Record *registry.Record `json:"record,omitempty"`
	// TimeoutNS is the time that the answer may take; 0: no limit.
	TimeoutNS int64 `json:"timeout_ns,omitempty"`
}

// Answer is a line of the program. The first has Protocol and Program.
type Answer struct {
	Protocol string              `json:"protocol,omitempty"`
	Program  string              `json:"program,omitempty"` // name and version, for people
	ID       uint64              `json:"id,omitempty"`
	Record   *registry.Record    `json:"record,omitempty"`
	StaleNS  int64               `json:"stale_ns,omitempty"` // of Record
	Name     string              `json:"name,omitempty"`     // of what is Gone from a listing
	Gone     bool                `json:"gone,omitempty"`
	Bad      *registry.BadRecord `json:"bad,omitempty"`
	Synced   bool                `json:"synced,omitempty"` // the listing is complete as of now
	Done     bool                `json:"done,omitempty"`   // it is published
	Lost     bool                `json:"lost,omitempty"`   // it is published no more
	Alive    bool                `json:"alive,omitempty"`
	End      bool                `json:"end,omitempty"` // the last line of this ID
	Error    *Error              `json:"error,omitempty"`
}

// Error is an error by its kind.
type Error struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

var kinds = []struct {
	kind string
	err  error
}{
	{"not-found", registry.ErrNotFound}, {"no-watch", registry.ErrNoWatch}, {"old-epoch", registry.ErrOldEpoch}, {"closed", registry.ErrClosed},
	{"unavailable", registry.ErrUnavailable}, {"denied", registry.ErrDenied}, {"timeout", context.DeadlineExceeded}, {"canceled", context.Canceled},
}

// ErrorOf puts an error into an answer, nil for none.
func ErrorOf(err error) *Error {
	if err == nil {
		return nil
	}
	out := &Error{Kind: "other", Text: text.Clip(err.Error(), maxText)}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			out.Kind = k.kind
			break
		}
	}
	return out
}

// Err is the error again: its text, and what it is by errors.Is; nil for nil. Kinds that are not known are
// other errors.
func (e *Error) Err() error {
	if e == nil {
		return nil
	}
	out := &saidError{text: text.Clip(e.Text, maxText)}
	for _, k := range kinds {
		if k.kind == e.Kind {
			out.is = k.err
		}
	}
	return out
}

// saidError is an error of the program, in its words.
type saidError struct {
	text string
	is   error
}

func (e *saidError) Error() string { return e.text }
func (e *saidError) Unwrap() error { return e.is }

var limits = jsontext.Limits{Bytes: MaxLine, Elements: 1 << 13, Depth: 6}

// decode reads a line within limits.
func decode[T any](line []byte) (*T, error) {
	out := new(T)
	err := limits.Check(line)
	if err == nil {
		err = jsontext.Locate(line, json.Unmarshal(line, out))
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// DecodeRequest reads a line to the program.
func DecodeRequest(line []byte) (*Request, error) {
	r, err := decode[Request](line)
	if err != nil {
		return nil, err
	}
	if r.TimeoutNS < 0 || len(r.URL) > maxText {
		return nil, fmt.Errorf("timeout_ns %d, a URL of %d bytes: want 0 or more, and at most %d", r.TimeoutNS, len(r.URL), maxText)
	}
	return r, nil
}

// DecodeAnswer reads a line of the program and checks what is in it.
func DecodeAnswer(line []byte) (*Answer, error) {
	a, err := decode[Answer](line)
	if err != nil {
		return nil, err
	}
	if a.StaleNS < 0 {
		return nil, fmt.Errorf("stale_ns %d: want 0 or more", a.StaleNS)
	}
	if a.Record != nil {
		if err := a.Record.Check(); err != nil {
			return nil, err
		}
		a.Record.Stale = time.Duration(a.StaleNS)
	}
	if a.Bad != nil {
		a.Bad.Key, a.Bad.Error = text.Clip(a.Bad.Key, maxText), text.Clip(a.Bad.Error, maxText)
	}
	return a, nil
}

// Encode is a message as a line.
func Encode(message any) ([]byte, error) {
	line, err := json.Marshal(message)
	if err == nil && len(line) >= MaxLine {
		err = fmt.Errorf("a message of %d bytes: want less than %d", len(line), MaxLine)
	}
	return append(line, '\n'), err
}

// Lines calls each with the lines of r, without their ends, until r ends or each gives an error. A line
// that is too long is an error.
func Lines(r io.Reader, each func(line []byte) error) error {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 4096), MaxLine)
	for s.Scan() {
		if line := bytes.TrimSpace(s.Bytes()); len(line) > 0 {
			if err := each(line); err != nil {
				return err
			}
		}
	}
	return s.Err()
}
