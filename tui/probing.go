package tui

import (
	"context"
	"errors"
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
)

// probing is a probe that this dashboard runs.
type probing struct {
	stop  context.CancelFunc
	asked bool // to stop
}

// noProber is why nothing can be measured, "" it can.
func (o *Options) noProber() string {
	switch {
	case o.Prober != nil:
		return ""
	case o.NoProber != "":
		return o.NoProber
	}
	return "nothing here can measure"
}

// list asks the prober which pairs there are.
func (m *model) list() {
	if why := m.o.noProber(); why != "" || m.work == nil {
		m.say("nothing can be measured: " + m.look.Safe(why))
		return
	}
	m.work.background(func(ctx context.Context) tea.Msg {
		pairs, err := m.o.Prober.Pairs(ctx)
		return answered(func(m *model) tea.Cmd {
			return m.request(m.probes.SetPairs(pairs, err))
		})
	})
}

// measure asks the user whether to measure, with what it takes.
func (m *model) measure(pairs []string) {
	why := m.o.noProber()
	switch {
	case why != "" || m.work == nil:
		m.say("nothing can be measured: " + m.look.Safe(why))
		return
	case m.probe != nil:
		m.say("a probe runs already")
		return
	case len(pairs) == 0:
		m.say("no pair is chosen")
		return
	}
	m.work.background(func(context.Context) tea.Msg {
		plan, err := m.o.Prober.Plan(pairs)
		return answered(func(m *model) tea.Cmd {
			switch {
			case err != nil:
				m.say("cannot measure that: " + m.look.Safe(err.Error()))
			case m.dialog == nil && m.probe == nil:
				m.dialog = m.askToMeasure(plan, pairs)
			}
			return nil
		})
	})
}

// namedPairs is how many pairs the question names.
const namedPairs = 5

func (m *model) askToMeasure(plan probe.Plan, pairs []string) *dialog {
	d := &dialog{title: "Measure " + count(plan.Pairs, "pair") + "? This sends traffic.", yes: "start",
		act: func(m *model) { m.start(pairs) }}
	for i, id := range pairs {
		if i == namedPairs && len(pairs) > namedPairs+1 {
			d.lines = append(d.lines, fmt.Sprintf("  and %d more", len(pairs)-i))
			break
		}
		d.lines = append(d.lines, "  "+m.look.Safe(id))
	}
	bytes := "an unknown number of bytes" // no rate is expected of these pairs
	if plan.Bytes > 0 {
		bytes = "about " + units.Bytes(plan.Bytes) + " in all"
	}
	d.lines = append(d.lines, "", count(plan.Rounds, "round")+", about "+roughly(plan.TimeNS)+", "+bytes)
	return d
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprint(n) + " " + noun + "s"
}

func roughly(ns int64) string {
	d := time.Duration(ns)
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// start measures. What the prober tells is news like any other.
func (m *model) start(pairs []string) {
	if m.probe != nil {
		return
	}
	ctx, stop := context.WithCancel(m.work.ctx)
	p := &probing{stop: stop}
	m.probe = p
	m.apply(probeStatus(record.StatusOK, ""))
	m.say("measuring")
	m.work.background(func(context.Context) tea.Msg {
		err := m.o.Prober.Run(ctx, pairs, func(e *probe.Event) {
			m.work.enqueue(item{record: &record.Record{Schema: record.Schema, Source: record.SourceProbe, Probe: e}})
		})
		stop()
		m.work.enqueue(item{then: func(m *model) { m.probeEnded(p, err) }})
		return nil
	})
}

// probeEnded notes how a probe ended.
func (m *model) probeEnded(p *probing, err error) {
	m.probe = nil
	switch {
	case p.asked && (err == nil || errors.Is(err, context.Canceled)):
		m.say("the probe was stopped")
		m.apply(probeStatus(record.StatusEnded, "stopped"))
	case err != nil:
		m.say("the probe failed: " + m.look.Safe(err.Error()))
		m.apply(probeStatus(record.StatusFailed, err.Error()))
	default:
		m.say("measured")
		m.apply(probeStatus(record.StatusEnded, ""))
	}
}

func probeStatus(status, detail string) *record.Record {
	return &record.Record{Schema: record.Schema, Source: record.SourceProbe, State: &record.SourceState{Status: status, Detail: detail}}
}

// askToStop asks whether to stop the probe that runs.
func (m *model) askToStop() {
	p := m.probe
	if p == nil {
		m.say("no probe of this dashboard runs")
		return
	}
	m.dialog = &dialog{title: "Stop the probe?", lines: []string{"What was measured so far stays."}, yes: "stop it",
		act: func(m *model) {
			p.asked = true
			p.stop()
			m.say("stopping the probe")
		}}
}
