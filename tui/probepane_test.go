package tui

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/probe"
)

// slowProber is a prober whose answers tests give.
type slowProber struct {
	fakeProber
	asked  chan struct{}
	answer chan error
	events []*probe.Event
}

func (p *slowProber) Pairs(ctx context.Context) ([]probe.Pair, error) {
	p.asked <- struct{}{}
	select {
	case err := <-p.answer:
		if err != nil {
			return nil, err
		}
		return p.pairs, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (p *slowProber) Run(ctx context.Context, _ []string, tell func(*probe.Event)) error {
	for _, e := range p.events {
		tell(e)
	}
	<-ctx.Done()
	return nil
}

func ofPort(from, to string) probe.Pair {
	p := probe.Pair{Kind: probe.Port, Transport: probe.TCP, From: probe.End{Host: from, Name: "eth0"}, To: probe.End{Host: to, Name: "eth0"}}
	p.ID = probe.PairID(p.Kind, p.From, p.To, p.Transport, "")
	return p
}

// A prober that hangs, and one that fails, are seen in the pane, and the rest lives on.
func TestProberHangsAndFails(t *testing.T) {
	p := &slowProber{asked: make(chan struct{}, 9), answer: make(chan error)}
	p.pairs = []probe.Pair{ofPort("n1", "n2"), ofPort("n2", "n1")}
	b := open(t, Options{Prober: p}, "cpu-2eth", 3, 120, 30)
	b.press("4")
	b.has("nothing is sent before")
	if len(p.asked) > 0 {
		t.Error("the prober is asked before the user asks")
	}
	b.press("enter")
	<-p.asked
	b.has("asking what can be measured")
	b.press("enter", "p")
	b.press("2")
	b.has("Matrix")
	b.press("4")
	b.has("asking what can be measured")
	p.answer <- errors.New("n1: no answer within 10 s \x1b[2J")
	b.wait(func() bool { return !contains(b, "asking what can be measured") })
	b.has("no answer within 10 s")
	b.press("enter")
	<-p.asked
	p.answer <- nil
	b.wait(func() bool { return contains(b, "n1/eth0 > n2/eth0") })
	if len(p.asked) > 0 {
		t.Errorf("it was asked %d times more", len(p.asked))
	}
	b.press("enter") // the group folds
	b.lacks("n1/eth0 > n2/eth0")
}

func contains(b *board, text string) bool { return strings.Contains(b.text(), text) }

// From the keys to the verdicts: pairs are marked and measured after the question; an agent
// that is lost meanwhile is seen, and all else goes on.
func TestProbePane(t *testing.T) {
	good, bad := ofPort("n1", "n2"), ofPort("n1", "n3")
	p := &slowProber{asked: make(chan struct{}, 1), answer: make(chan error, 1)}
	p.pairs = []probe.Pair{good, bad}
	p.answer <- nil
	rate := probe.Bandwidth{SizeBytes: 1 << 20, SamplesBytesPerSec: []int64{1e9, 1e9}, MeanBytesPerSec: 1e9, MedianBytesPerSec: 1e9}
	p.events = []*probe.Event{
		{Type: probe.EventStart, Start: &probe.Report{Schema: probe.Schema, Mode: "fabric", Plan: probe.Plan{Rounds: 3, Pairs: 2}}},
		{Type: probe.EventRound, AtNS: 1, Round: &probe.RoundEvent{Round: 1, Rounds: 3, Pairs: []string{good.ID, bad.ID}}},
		{Type: probe.EventSample, AtNS: 2, Sample: &probe.SampleEvent{Pair: good.ID, Sample: probe.Sample{SizeBytes: 1 << 20, BytesPerSec: 1e9}}},
		{Type: probe.EventError, AtNS: 3, Error: bad.ID + ": n3: the peer is gone"},
		{Type: probe.EventResult, AtNS: 3, Result: &probe.Result{Pair: good, Round: 1, Verdict: probe.Pass, Measurement: probe.Measurement{Bandwidth: []probe.Bandwidth{rate}}}},
		{Type: probe.EventResult, AtNS: 3, Result: &probe.Result{Pair: bad, Round: 1, Verdict: probe.Error, Error: "n3: the peer is gone"}},
		{Type: probe.EventRound, AtNS: 4, Round: &probe.RoundEvent{Round: 2, Rounds: 3, Pairs: []string{good.ID}}},
	}
	b := open(t, Options{Prober: p}, "cpu-2eth", 3, 200, 50)
	b.press("4", "enter")
	b.wait(func() bool { return contains(b, "[ ] n1/eth0 > n2/eth0") })
	b.press("a", "p")
	b.wait(func() bool { return b.dialog != nil })
	b.press("y")
	b.wait(func() bool { return contains(b, "round 2 of 3") })
	for _, want := range []string{"PASS", "8 Gb/s", "ERROR", "the peer is gone", "being measured", "now"} {
		b.has(want)
	}
	b.press("2")
	b.has("Matrix")
	b.press("4", "p")
	b.has("Stop the probe?")
	b.press("y")
	b.wait(func() bool { return b.probe == nil })
	b.lacks("being measured")
	b.has("ERROR")
}

// Two keys and a yes measure everything: 4, p, y.
func TestMeasureAll(t *testing.T) {
	f := &fakeProber{pairs: []probe.Pair{ofPort("n1", "n2"), ofPort("n2", "n1")}}
	f.pairs[1].Waived = "the port is down"
	b := open(t, Options{Prober: f}, "cpu-2eth", 3, 120, 30)
	b.press("4", "p")
	b.wait(func() bool { return b.dialog != nil })
	b.has("Measure 1 pair? This sends traffic.")
	if f.runs() != 0 {
		t.Fatal("it measures before the yes")
	}
	b.press("y")
	b.wait(func() bool { return f.runs() == 1 })
	if want := []string{f.pairs[0].ID}; !slices.Equal(f.ran[0], want) {
		t.Errorf("measured %v, want %v", f.ran[0], want)
	}
}
