package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// SchemaEngine is the name and major version of what an agent answers.
const SchemaEngine = "topoctl.engine/v1"

// answerBounds are what an answer may be; an engine with 4096 lanes says 2 MB.
var answerBounds = bounds{bytes: 8 << 20, text: 1 << 14, elements: 1 << 17, depth: 32}

// How much of an answer is shown.
const (
	mostPeers   = 1024
	mostLanes   = 4096
	mostServed  = 1024
	mostBatches = 64
	mostRoutes  = 16 // of a batch
	mostGroups  = 16 // of a route
	mostUses    = 256
	mostNotes   = 64
)

// DecodeEngine reads the topoctl.engine/v1 document that an agent answers and takes nothing
// in it on trust: it is bounded, lists that are too long are cut and Notes say so, and no
// figure is negative. Texts are bounded by their length only: who draws them must make them
// printable.
func DecodeEngine(data []byte) (*Engine, error) {
	e, err := decodeEngine(data, false)
	if err != nil {
		return nil, fmt.Errorf("record: engine: %w", err)
	}
	return e, nil
}

// decodeEngine reads an answer, or the engine of a record, which has notes of its own and
// no schema.
func decodeEngine(data []byte, recorded bool) (*Engine, error) {
	if err := answerBounds.check(data); err != nil {
		return nil, err
	}
	var doc struct {
		Schema string `json:"schema"`
		Engine
	}
	err := json.Unmarshal(data, &doc)
	if !recorded {
		if wrong := checkSchema(doc.Schema, SchemaEngine); wrong != nil && (err == nil || doc.Schema != "") {
			return nil, wrong
		}
		doc.Notes = nil
	}
	if err != nil {
		return nil, fmt.Errorf("no %s: %w", SchemaEngine, err)
	}
	e := &doc.Engine
	e.cut()
	if err := e.check(); err != nil {
		return nil, err
	}
	return e.normal(), nil
}

// cut shortens what is too long, and notes it.
func (e *Engine) cut() {
	note := func(what string, n, most int) {
		if n > most {
			e.Notes = append(e.Notes, fmt.Sprintf("%d of %d %s are shown", most, n, what))
		}
	}
	note("peers", shorten(&e.Peers, mostPeers), mostPeers)
	note("lanes", shorten(&e.Lanes, mostLanes), mostLanes)
	note("served connections", shorten(&e.Served, mostServed), mostServed)
	note("batches", shorten(&e.Recent, mostBatches), mostBatches)
	shorten(&e.ServedUncounted, mostNotes)
	for i := range e.Recent {
		b := &e.Recent[i]
		note("notes of a batch", shorten(&b.Notes, mostNotes), mostNotes)
		note("routes of a batch", shorten(&b.Routes, mostRoutes), mostRoutes)
		for k := range b.Routes {
			r := &b.Routes[k]
			note("transports of a route", shorten(&r.Groups, mostGroups), mostGroups)
			note("used lanes of a route", shorten(&r.Used, mostUses), mostUses)
			for g := range r.Groups {
				note("lanes of a transport", shorten(&r.Groups[g].Lanes, mostUses), mostUses)
				note("rejected ports of a transport", shorten(&r.Groups[g].Rejected, mostNotes), mostNotes)
			}
		}
	}
	shorten(&e.Notes, mostNotes)
}

// shorten cuts a list and says how long it was.
func shorten[T any](list *[]T, most int) int {
	n := len(*list)
	if n > most {
		*list = (*list)[:most:most]
	}
	return n
}

var errNegative = errors.New("want 0 or more")

// counted refuses figures below zero, and those that sums would not hold.
func counted(values ...int64) error {
	for _, v := range values {
		if v < 0 || v > math.MaxInt64/4 {
			return fmt.Errorf("%d: %w", v, errNegative)
		}
	}
	return nil
}

// check refuses figures that count nothing.
func (e *Engine) check() error {
	err := counted(e.Batches, e.Failed, e.Unsafe, e.Slices, e.Retries, e.Fallback, e.ServedReadBytes, e.ServedWrittenBytes, e.Refused,
		int64(e.Sessions), int64(e.ServedUnlisted))
	if err != nil {
		return err
	}
	for i := range e.Peers {
		if err := counted(e.Peers[i].RoundTripNS, e.Peers[i].Batches); err != nil {
			return fmt.Errorf("peers[%d]: %w", i, err)
		}
	}
	for i := range e.Lanes {
		l := &e.Lanes[i]
		if err := counted(int64(l.BytesPerSec), l.Bytes, l.Slices, l.InflightBytes, int64(l.InflightSlices), l.WindowBytes, l.Retries, l.Failures); err != nil {
			return fmt.Errorf("lanes[%d]: %w", i, err)
		}
	}
	for i := range e.Served {
		for _, n := range []*int64{e.Served[i].ReadBytes, e.Served[i].WrittenBytes} {
			if n != nil && counted(*n) != nil {
				return fmt.Errorf("served[%d]: %w", i, counted(*n))
			}
		}
	}
	for i := range e.Recent {
		if err := e.Recent[i].check(); err != nil {
			return fmt.Errorf("recent_batches[%d]: %w", i, err)
		}
	}
	return nil
}

func (b *EngineBatch) check() error {
	if err := counted(b.Bytes, b.Total, int64(b.Ops), b.DurationNS, b.EndedAgoNS, b.Retries); err != nil {
		return err
	}
	for i := range b.Routes {
		r := &b.Routes[i]
		if err := counted(r.Bytes); err != nil {
			return err
		}
		for g := range r.Groups {
			for k := range r.Groups[g].Lanes {
				if err := rate(r.Groups[g].Lanes[k].ExpectedBytesPerSec); err != nil {
					return err
				}
			}
		}
		for k := range r.Used {
			u := &r.Used[k]
			if err := counted(u.Bytes, u.Slices, u.Retries, u.FirstNS, u.LastNS); err != nil {
				return err
			}
		}
	}
	return nil
}

// normal has no list that is nil. The engine is left as it is.
func (e *Engine) normal() *Engine {
	n := *e
	n.Peers, n.Lanes, n.Served, n.ServedUncounted = notNil(n.Peers), notNil(n.Lanes), notNil(n.Served), notNil(n.ServedUncounted)
	n.Recent = each(n.Recent, func(b *EngineBatch) {
		b.Routes = each(b.Routes, func(r *EngineRoute) {
			r.Used = notNil(r.Used)
			r.Groups = each(r.Groups, func(g *EngineGroup) { g.Lanes = notNil(g.Lanes) })
		})
	})
	return &n
}

// each is a copy of a list whose elements were changed.
func each[T any](list []T, change func(*T)) []T {
	out := append([]T{}, list...)
	for i := range out {
		change(&out[i])
	}
	return out
}
