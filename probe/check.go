package probe

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// What single things may be at most.
const (
	maxName    = 512
	maxRate    = 1_000_000_000_000_000 // bytes/s; beyond it sums would not fit
	maxSizes   = 256
	maxSamples = 1 << 16
	maxReasons = 256
	maxNS      = int64(365 * 24 * time.Hour)
)

// checkName refuses names that cannot be shown as they are.
func checkName(what, s string) error {
	if len(s) > maxName {
		return fmt.Errorf("%s: %d bytes: at most %d are read", what, len(s), maxName)
	}
	for _, c := range s {
		if !unicode.IsGraphic(c) || c == unicode.ReplacementChar {
			return fmt.Errorf("%s %.60q: a character of it cannot be printed", what, s)
		}
	}
	return nil
}

func checkNames[T ~string](what string, list ...T) error {
	for _, s := range list {
		if err := checkName(what, string(s)); err != nil {
			return err
		}
	}
	return nil
}

// within refuses figures below zero and those that no machine has.
func within(what string, most int64, values ...int64) error {
	for _, v := range values {
		if v < 0 || v > most {
			return fmt.Errorf("%s %d: want 0 to %d", what, v, most)
		}
	}
	return nil
}

func checkRate[T ~int64](what string, v *T) error {
	if v == nil {
		return nil
	}
	return within(what, maxRate, int64(*v))
}

func checkBasis(b topo.Basis) error {
	switch b {
	case topo.BasisMeasured, topo.BasisRead, topo.BasisTypical, topo.BasisBound, topo.BasisUnknown:
		return nil
	}
	return fmt.Errorf("basis %.40q: want measured, read, bound, typical or unknown", b)
}

func (l *Link) check() error {
	return cmp.Or(checkName("key", string(l.Key)), checkName("host", l.Host), checkName("link", string(l.Link)),
		checkName("name", l.Name), checkNames("on", l.On...), checkRate("bytes_per_sec", l.BytesPerSec), checkBasis(l.Basis))
}

// check looks at one result for itself.
func (x *Result) check() error {
	if x.ID == "" {
		return errors.New("no id")
	}
	if !slices.Contains(verdicts(), x.Verdict) {
		return fmt.Errorf("verdict %.40q: want one of %v", x.Verdict, verdicts())
	}
	if len(x.Bandwidth) > maxSizes || len(x.Reasons) > maxReasons || len(x.Retests) > maxReasons {
		return fmt.Errorf("%d sizes, %d reasons, %d retests: at most %d are read", len(x.Bandwidth), len(x.Reasons), len(x.Retests), maxSizes)
	}
	err := cmp.Or(checkNames("name", x.ID, string(x.Kind), x.Transport, x.Variant, x.Group, string(x.ErrorCause)),
		x.From.check(), x.To.check(), checkRate("expected", x.Expected.BytesPerSec), checkBasis(x.Expected.Basis),
		within("round", 1<<31, int64(x.Round)), x.checkLatency(), x.checkRatios())
	for i := range x.Bandwidth {
		err = cmp.Or(err, x.Bandwidth[i].check())
		if i > 0 && x.Bandwidth[i].SizeBytes <= x.Bandwidth[i-1].SizeBytes {
			err = cmp.Or(err, fmt.Errorf("bandwidth: %d bytes after %d: want sizes ascending", x.Bandwidth[i].SizeBytes, x.Bandwidth[i-1].SizeBytes))
		}
	}
	for i := range x.Retests {
		t := &x.Retests[i]
		err = cmp.Or(err, checkNames("retest", t.How, t.Pair), checkRate("retest", t.BytesPerSec), checkRate("retest", t.CI95BytesPerSec))
		if t.LatencyNS != nil {
			err = cmp.Or(err, within("retest: latency_ns", maxNS, *t.LatencyNS))
		}
	}
	return err
}

func (e *End) check() error {
	return checkNames("end", e.Host, string(e.Node), e.Name, string(e.Location))
}

func (b *Bandwidth) check() error {
	if n := len(b.SamplesBytesPerSec); n > maxSamples {
		return fmt.Errorf("bandwidth: %d samples: at most %d are read", n, maxSamples)
	}
	return cmp.Or(within("size_bytes", 1<<50, b.SizeBytes), within("samples_bytes_per_sec", maxRate, b.SamplesBytesPerSec...),
		within("bandwidth", maxRate, b.MeanBytesPerSec, b.MedianBytesPerSec), checkRate("ci95_bytes_per_sec", b.CI95BytesPerSec),
		within("bytes", 1<<62, b.Bytes), within("duration_ns", maxNS, b.DurationNS), checkName("stopped", b.Stopped))
}

func (x *Result) checkLatency() error {
	if x.Latency == nil {
		return nil
	}
	for _, p := range []*Percentiles{x.Latency.RTT, x.Latency.OneWay, x.Latency.Load, x.Latency.Copy} {
		if p == nil {
			continue
		}
		list := []int64{0, p.Min, p.P50, p.P90, p.P99, p.Max, maxNS}
		if p.P999 != nil {
			list = slices.Insert(list, 5, *p.P999)
		}
		if p.N < 1 || !slices.IsSorted(list) {
			return fmt.Errorf("latency: percentiles of %d samples are not in order", p.N)
		}
	}
	return nil
}

func (x *Result) checkRatios() error {
	if len(x.Processors) > 2 {
		return fmt.Errorf("processors of %d hosts: a pair has two ends", len(x.Processors))
	}
	for _, p := range x.Processors {
		if err := checkName("processors: host", p.Host); err != nil {
			return err
		}
		for _, v := range []float64{p.Busy, p.Own} {
			if !(v >= 0 && v <= 1) {
				return fmt.Errorf("processors of %s: %g: want a part of their time, 0 to 1", p.Host, v)
			}
		}
	}
	for _, v := range []*float64{x.Efficiency, x.OfBest, x.CPUSecondsPerGB} {
		if v != nil && !(*v >= 0 && *v < 1e9) {
			return fmt.Errorf("efficiency, of_best or cpu_seconds_per_gb %g: want 0 or more", *v)
		}
	}
	return nil
}

// check looks at what the parts of a report say of each other.
func (r *Report) check() error {
	hosts, devices, links, pairs := map[string]bool{}, map[string]bool{}, map[LinkKey]bool{}, map[string]bool{}
	if err := cmp.Or(within("duration_ns", maxNS, r.DurationNS), checkNames("mode", r.Mode)); err != nil {
		return pkgerr.Errorf("probe", "%w", err)
	}
	for i := range r.Hosts {
		h := &r.Hosts[i]
		if err := checkNames("hosts", h.Name, h.Address, h.Fingerprint); err != nil {
			return pkgerr.Errorf("probe", "%w", err)
		}
		if hosts[h.Name] {
			return pkgerr.Errorf("probe", "two hosts are called %q", h.Name)
		}
		hosts[h.Name] = true
	}
	for i := range r.Devices {
		d := &r.Devices[i]
		if err := checkNames("devices", d.Key, d.Kind, d.Name); err != nil {
			return pkgerr.Errorf("probe", "%w", err)
		}
		devices[d.Key] = true
	}
	for i := range r.Links {
		l := &r.Links[i]
		if links[l.Key] {
			return pkgerr.Errorf("probe", "two links have the key %q", l.Key)
		}
		links[l.Key] = true
		if l.Host != "" && !hosts[l.Host] {
			return pkgerr.Errorf("probe", "link %q is of host %q, which is not among the hosts (%s)", l.Key, l.Host, keysOf(hosts))
		}
		for _, d := range l.On {
			if !devices[d] {
				return pkgerr.Errorf("probe", "link %q is on %q, which is not among the devices", l.Key, d)
			}
		}
	}
	for i := range r.Results {
		x := &r.Results[i]
		if pairs[x.ID] {
			return pkgerr.Errorf("probe", "two results have the id %q", x.ID)
		}
		pairs[x.ID] = true
		if err := x.checkRefs(hosts, links); err != nil {
			return pkgerr.Errorf("probe", "result %q: %w", x.ID, err)
		}
	}
	return r.checkBlame(links, pairs)
}

func (x *Result) checkRefs(hosts map[string]bool, links map[LinkKey]bool) error {
	for _, h := range []string{x.From.Host, x.To.Host} {
		if !hosts[h] {
			return fmt.Errorf("host %q is not among the hosts (%s)", h, keysOf(hosts))
		}
	}
	for _, k := range x.Path {
		if !links[k] {
			return fmt.Errorf("path: %q is not among the links", k)
		}
	}
	if k := x.Expected.Limit; k != "" && !links[k] {
		return fmt.Errorf("limit_link: %q is not among the links", k)
	}
	for i := range x.Links {
		if k := x.Links[i].Link; !links[k] {
			return fmt.Errorf("link_states: %q is not among the links", k)
		}
	}
	return nil
}

func (r *Report) checkBlame(links map[LinkKey]bool, pairs map[string]bool) error {
	for i := range r.Blame {
		b := &r.Blame[i]
		b.Kind = cmp.Or(b.Kind, Fault) // of an earlier version
		if b.Kind != Fault && b.Kind != Congestion {
			return pkgerr.Errorf("probe", "blame[%d]: kind %.40q: want %s or %s", i, b.Kind, Fault, Congestion)
		}
		for _, id := range b.Pairs {
			if !pairs[id] {
				return pkgerr.Errorf("probe", "blame[%d]: pair %.80q is not among the results", i, id)
			}
		}
		for k := range b.Suspects {
			s := &b.Suspects[k]
			if err := cmp.Or(checkNames("suspect", s.Kind, s.Key, s.Name), checkRate("bytes_per_sec", s.BytesPerSec)); err != nil {
				return pkgerr.Errorf("probe", "blame[%d]: %w", i, err)
			}
			for _, key := range s.Links {
				if !links[key] {
					return pkgerr.Errorf("probe", "blame[%d]: suspect %.80q: link %.80q is not among the links", i, s.Name, key)
				}
			}
		}
	}
	return nil
}
