package judge_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/internal/judge"
	"github.com/topoctl/topoctl/testkit/golden"
)

// Transcripts: a fabric, what is wrong with it and what else was seen, and after the dashes the
// whole judgement, for people to read and to disagree with.
//
//	fabric hosts=4 nics=2 rails cross spines=1 uplink=2 basis=typical noise=0.002
//	loopback                   also pairs from each port to itself
//	hidden                     nobody knows the ways between leaves
//	rules retests=0 schedule=endpoint limit=10
//	part KIND KEY 0.25         a part carries so much of what it should
//	late KEY 5000              a link adds so many nanoseconds
//	busy KEY 0.5               others use that much of a link, but not during retests
//	got PATTERN 12.4           pairs give this, whenever they are measured
//	once PATTERN 12.4 ±0.1     pairs were measured so beside others
//	processors HOST 0.97       how busy a host's processors were, 0.2 by what measured
//	processors HOST 0.97 once PATTERN   likewise in these pairs, and not when they are measured again
//	error PATTERN TEXT · waive PATTERN TEXT · nothing PATTERN
//	host-error HOST TEXT
//	state KEY STATE · count KEY COUNTER N
//	expect PATTERN none|40 constant
//
// Keys have + for a blank. A pattern is a part of an ID, * stands for anything.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			input, want, _ := strings.Cut(string(text), "\n----\n")
			got := run(t, input)
			if golden.Updating() {
				if err := os.WriteFile(file, []byte(strings.TrimSpace(input)+"\n----\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != want {
				t.Errorf("%s differs (go test -update writes it anew):\n%s", file, got)
			}
		})
	}
}

// script is a transcript's input: what is done before the measurement, and what after it.
type script struct {
	m     *model
	busy  map[probe.LinkKey]float64
	after []func()
}

func run(t *testing.T, input string) string {
	s := &script{busy: map[probe.LinkKey]float64{}}
	for line := range strings.Lines(input) {
		if f := strings.Fields(line); len(f) > 0 && f[0] != "#" {
			if err := s.line(f); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		}
	}
	for k, part := range s.busy {
		s.m.caps[k] *= 1 - part
	}
	s.m.measure()
	for k, part := range s.busy {
		s.m.caps[k] /= 1 - part
	}
	for _, f := range s.after {
		f()
	}
	judge.Verdicts(s.m.r)
	again := s.m.retest(t)
	judge.Judge(s.m.r)
	return words(s.m.r, again)
}

func (s *script) line(f []string) error {
	arg := func(i int) string {
		if i < len(f) {
			return f[i]
		}
		return ""
	}
	number := func(i int) float64 { v, _ := strconv.ParseFloat(strings.TrimPrefix(arg(i), "±"), 64); return v }
	key := strings.ReplaceAll(arg(1), "+", " ")
	rest := strings.Join(f[min(2, len(f)):], " ")
	each := func(do func(r *probe.Result)) { s.after = append(s.after, func() { s.each(arg(1), do) }) }
	crossing := func(do func(r *probe.Result)) {
		s.after = append(s.after, func() {
			s.each("*", func(r *probe.Result) {
				if slices.Contains(r.Path, probe.LinkKey(key)) {
					do(r)
				}
			})
		})
	}
	switch f[0] {
	case "fabric":
		s.m = fabricOf(f[1:])
	case "loopback":
		s.m.loopbacks()
	case "hidden":
		s.after = append(s.after, func() { s.each("*", hide) })
	case "rules":
		return s.rules(f[1:])
	case "part":
		key = strings.ReplaceAll(arg(2), "+", " ")
		i := slices.IndexFunc(s.m.faults(), func(x fault) bool { return x.kind == arg(1) && x.key == key })
		if i < 0 {
			return errors.New("no such part")
		}
		s.m.plant(s.m.faults()[i], number(3))
	case "late":
		s.m.late[probe.LinkKey(key)] = number(2)
	case "busy":
		s.busy[probe.LinkKey(key)] = number(2)
	case "got":
		s.each(arg(1), func(r *probe.Result) { s.m.fixed[r.ID] = number(2) * 1e9 })
	case "once":
		each(func(r *probe.Result) {
			mean, half := int64(number(2)*1e9), int64(number(3)*1e9)
			b := &r.Bandwidth[0]
			b.MeanBytesPerSec, b.MedianBytesPerSec, b.CI95BytesPerSec, b.Stopped = mean, mean, &half, probe.StoppedCI
			if float64(half) > s.m.r.Spec.CI*float64(mean) {
				b.Stopped = probe.StoppedMaxSamples
			}
		})
	case "processors":
		s.m.idleAgain[arg(1)] = arg(3) == "once"
		s.after = append(s.after, func() {
			s.each(cmp.Or(arg(4), "*"), func(r *probe.Result) {
				if r.From.Host == arg(1) || r.To.Host == arg(1) {
					r.Processors = append(r.Processors, probe.ProcessorLoad{Host: arg(1), Busy: number(2), Own: 0.2})
				}
			})
		})
	case "error":
		each(func(r *probe.Result) {
			r.Measurement = probe.Measurement{Err: probe.Because(probe.CauseMove, errors.New(rest))}
		})
	case "waive":
		each(func(r *probe.Result) { r.Measurement = probe.Measurement{Waived: rest} })
	case "nothing":
		each(func(r *probe.Result) { r.Measurement, r.Round = probe.Measurement{}, 0 })
	case "host-error":
		i := slices.IndexFunc(s.m.r.Hosts, func(h probe.Host) bool { return h.Name == arg(1) })
		s.m.r.Hosts[i].Error = rest
	case "state":
		crossing(func(r *probe.Result) {
			r.Links = append(r.Links, probe.LinkState{Link: probe.LinkKey(key), State: rest})
		})
	case "count":
		crossing(func(r *probe.Result) {
			r.Links = append(r.Links, probe.LinkState{Link: probe.LinkKey(key), Counters: map[string]int64{arg(2): int64(number(3))}})
		})
	case "expect":
		s.each(arg(1), func(r *probe.Result) {
			rate := topo.Rate(number(2) * 1e9)
			r.Expected = probe.Expected{BytesPerSec: &rate, Basis: topo.Basis(arg(3)), Limit: r.Expected.Limit}
			if rate == 0 {
				r.Expected = probe.Expected{Basis: topo.BasisUnknown}
			}
		})
	default:
		return errors.New("unknown")
	}
	return nil
}

func (s *script) rules(f []string) error {
	for _, o := range f {
		name, value, _ := strings.Cut(o, "=")
		n, _ := strconv.Atoi(value)
		switch name {
		case "retests":
			s.m.r.Rules.Retests = n
		case "schedule":
			s.m.r.Plan.Schedule = value
		case "limit":
			s.m.r.Spec.RateLimit = int64(n) * 1e9
		default:
			return errors.New("unknown rule")
		}
	}
	return nil
}

func (s *script) each(pattern string, do func(r *probe.Result)) {
	for i := range s.m.r.Results {
		id := s.m.r.Results[i].ID
		matches := true
		for _, piece := range strings.Split(pattern, "*") {
			at := strings.Index(id, piece)
			if matches = matches && at >= 0; matches {
				id = id[at+len(piece):]
			}
		}
		if matches {
			do(&s.m.r.Results[i])
		}
	}
}

func fabricOf(options []string) *model {
	var s shape
	noise := 0.002
	for _, o := range options {
		name, value, _ := strings.Cut(o, "=")
		n, _ := strconv.Atoi(value)
		switch name {
		case "hosts":
			s.hosts = n
		case "nics":
			s.nics = n
		case "rails":
			s.rails = true
		case "cross":
			s.cross = true
		case "spines":
			s.spines = n
		case "uplink":
			s.uplink = float64(n)
		case "basis":
			s.basis = topo.Basis(value)
		case "noise":
			noise, _ = strconv.ParseFloat(value, 64)
		}
	}
	m := newModel(s, 1)
	m.noise = noise
	return m
}

// loopbacks adds a pair from each port to itself: over PCIe and back.
func (m *model) loopbacks() {
	seen := map[string]bool{}
	rate := 63 * gig
	for _, r := range m.r.Results[:len(m.r.Results):len(m.r.Results)] {
		e := r.From
		if seen[e.Host+e.Name] {
			continue
		}
		seen[e.Host+e.Name] = true
		path := []probe.LinkKey{probe.Key(e.Host, topo.LinkID("pcie:"+e.Name), "down"), probe.Key(e.Host, topo.LinkID("pcie:"+e.Name), "up")}
		m.add(probe.Pair{ID: probe.PairID(probe.Port, e, e, probe.RDMA, ""), Kind: probe.Port, Transport: probe.RDMA,
			From: e, To: e, Path: path, PathKnown: true, Group: "loopback", Expected: probe.Expected{BytesPerSec: &rate, Basis: topo.BasisRead, Limit: path[0]}})
	}
	for i := range m.r.Results {
		m.r.Results[i].Round = 0
	}
	m.schedule()
}

// hide takes the uplinks out of a path.
func hide(r *probe.Result) {
	if len(r.Path) == 6 {
		r.Path, r.PathKnown = slices.Concat(r.Path[:2], r.Path[4:]), false
	}
}

// words is a judged report as text.
func words(r *probe.Report, again int) string {
	var b strings.Builder
	s := r.Summary
	fmt.Fprintf(&b, "%d pass, %d warn, %d fail, %d inconclusive, %d waived, %d error; measured again: %d\n",
		s.Pass, s.Warn, s.Fail, s.Inconclusive, s.Waived, s.Error, again)
	told := map[string]int{}
	for i := range r.Results {
		res := &r.Results[i]
		if len(res.Reasons) == 0 {
			continue
		}
		kind := string(res.Verdict)
		for _, reason := range res.Reasons {
			kind += " " + reason.Code
		}
		if told[kind]++; told[kind] > 2 {
			continue
		}
		fmt.Fprintf(&b, "\n%s %s\n", res.Verdict, res.ID)
		for _, reason := range res.Reasons {
			fmt.Fprintf(&b, "  %s: %s\n", reason.Code, reason.Text)
		}
	}
	for kind, n := range told {
		if n <= 2 {
			delete(told, kind)
		}
	}
	kinds := []string{}
	for kind, n := range told {
		kinds = append(kinds, fmt.Sprintf("\n%d more like them: %s\n", n-2, kind))
	}
	slices.Sort(kinds)
	b.WriteString(strings.Join(kinds, ""))
	for _, blame := range r.Blame {
		fmt.Fprintf(&b, "\nblame for %d pairs, %s first\n", len(blame.Pairs), blame.Pairs[0])
		for _, s := range blame.Suspects {
			most := "?"
			if s.BytesPerSec != nil {
				most = fmt.Sprintf("%.1f GB/s", float64(*s.BytesPerSec)/1e9)
			}
			fmt.Fprintf(&b, "  %s %s: at most %s\n", s.Kind, s.Name, most)
		}
		for _, e := range blame.Evidence {
			fmt.Fprintf(&b, "  - %s\n", e)
		}
		if blame.Next != "" {
			fmt.Fprintf(&b, "  next: %s\n", blame.Next)
		}
	}
	return b.String()
}
