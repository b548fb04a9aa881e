package report

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Answer is what a run comes to, in a sentence or two: the time to the first token, what most of
// it is, and whether the system keeps up with the load. A comparison with other networks is a
// line of its own.
func (r *Report) Answer() []string {
	m := r.Metrics
	if m.TTFT == nil {
		return []string{"No request was answered."}
	}
	ttft := fmt.Sprintf("the first token takes %s on average (P99 %s)", millis(m.TTFT.Mean), millis(m.TTFT.P99))
	if r.wireAlone() {
		ttft = "at best, " + ttft
	}
	overload := r.overload()
	switch {
	case overload != "":
		ttft = fmt.Sprintf("Overloaded: %s. %s in this run, and ever longer in a longer one.", overload, capital(ttft))
	case m.Load == nil && r.Workload.Concurrency == nil && m.Requests > 1:
		ttft = fmt.Sprintf("All %d requests arrive at once, and %s, %s.", m.Requests, ttft, r.bound())
	default:
		ttft = fmt.Sprintf("%s, %s.", capital(ttft), r.bound())
	}
	if r.wireAlone() {
		ttft += " That is the wire alone: " + Published + "."
	}
	if m.Failed > 0 {
		ttft += fmt.Sprintf(" %d of %d requests failed.", m.Failed, m.Requests)
	}
	if m.Unfinished > 0 {
		ttft += fmt.Sprintf(" %d of %d requests were not finished.", m.Unfinished, m.Requests)
	}
	if other := r.others(); other != "" {
		return []string{ttft, other}
	}
	return []string{ttft}
}

// bound is the largest part of TTFT, and the part of moving the cache.
func (r *Report) bound() string {
	m := r.Metrics
	of := parts
	if r.Serving.FirstToken == "prefill" || r.Decode == nil {
		of = parts[:2] // caches move later, or not at all
	}
	name, most := "", 0.
	for _, p := range of {
		if x := p.of(&m.Split); x != nil && x.Mean > most {
			name, most = p.words, x.Mean
		}
	}
	if name == parts[0].words && r.Decode == nil {
		name = "waiting for an instance"
	}
	if name == "" || m.TTFT.Mean == 0 {
		return "and no part of it takes any time"
	}
	out := fmt.Sprintf("mostly %s (%s)", name, percent(most/m.TTFT.Mean))
	if 2*most <= m.TTFT.Mean {
		out = fmt.Sprintf("the largest part %s (%s)", name, percent(most/m.TTFT.Mean))
	}
	if r.Decode != nil && m.KVShareOfTTFT != nil {
		out += fmt.Sprintf("; moving the KV cache is %s of it", percent(*m.KVShareOfTTFT))
	}
	return out
}

// Published compares published systems with predictions of the wire alone. A test of presets computes it.
const Published = "published systems took 1.4 times as long in the median, 48 times at worst"

// wireAlone says whether moving a cache is taken to cost only the wire's time. It costs more in every real system.
func (r *Report) wireAlone() bool {
	s := &r.Serving
	return r.Decode != nil && r.NetworkBasis == Simulated && s.HandoffNS == 0 && s.SetupNS == 0 && s.PieceNS == 0
}

// overload says which side cannot keep up with the arrivals, by what it can compute or by the wait that grows;
// "" if both can.
func (r *Report) overload() string {
	load, served := r.Metrics.Load, r.Metrics.RequestsPerSec
	if load == nil {
		return ""
	}
	name, capacity := "the instances", r.Prefill.CapacityPerSec
	if r.Decode != nil {
		name = "prefill"
		if of := r.Decode.CapacityPerSec; of != nil && (capacity == nil || *of < *capacity) {
			name, capacity = "decode", of
		}
	}
	out := rounded(load.ArrivalsPerSec) + " requests arrive each second, and "
	switch {
	case capacity != nil && *capacity < load.ArrivalsPerSec:
		return out + name + " can compute " + rounded(*capacity) + " at most"
	case load.GrowingWait == "" || served == nil:
		return ""
	case r.Decode == nil:
		return out + rounded(*served) + " are served"
	}
	return out + rounded(*served) + " are served; what grows is the wait for " + load.GrowingWait
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// networks are the names of choices in a sentence.
var networks = map[string]string{"infinite": "an infinite network", "best-nic": "the best NIC alone", "random-nic": "a random NIC"}

// others says what other networks would change, where a ratio to them means something.
func (r *Report) others() string {
	var said []string
	for i := range r.Compared {
		x := &r.Compared[i]
		if x.TTFTRatio == nil || x.Metrics.TTFT == nil {
			continue
		}
		ms, part := r.Metrics.TTFT.Mean-x.Metrics.TTFT.Mean, 100*(1-*x.TTFTRatio)
		change := fmt.Sprintf("save %s (%.1f %%)", millis(ms), part)
		switch {
		case -shown < ms && ms < shown:
			change = "change nothing"
		case ms < 0:
			change = fmt.Sprintf("add %s (%.1f %%)", millis(-ms), -part)
		}
		said = append(said, fmt.Sprintf("%s would %s", cmp.Or(networks[x.Choice], "the network "+x.Name), change))
	}
	if said == nil {
		return ""
	}
	return capital(strings.Join(said, ", ")) + "."
}

// shown is the least difference that is worth a word, in milliseconds.
const shown = 0.005

// millis is a time for people, with three digits.
func millis(ms float64) string {
	if ms >= 1000 {
		return rounded(ms/1000) + " s"
	}
	return rounded(ms) + " ms"
}

// rounded has three digits, and no fraction from 100 on.
func rounded(v float64) string {
	digits := 2
	for limit := 10.; digits > 0 && v >= limit; limit *= 10 {
		digits--
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}
