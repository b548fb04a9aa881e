package measure

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/topoctl/topoctl/probe"
)

// reusable are the results of an earlier report that are still valid, by pair; notes say why others are
// measured again. A result is valid if the pair, its path, the hosts at both ends, the settings and the
// schedule are the same, and it was measured to its end.
func reusable(old, now *probe.Report, pairs []probe.Pair) (kept map[string]probe.Result, notes []string) {
	kept = map[string]probe.Result{}
	if !reflect.DeepEqual(old.Spec, now.Spec) {
		return kept, []string{"resume: the report was measured with other settings: every pair is measured again"}
	}
	if old.Plan.Schedule != now.Plan.Schedule || old.Plan.Contend != now.Plan.Contend {
		return kept, []string{"resume: the report was measured with another schedule: every pair is measured again"}
	}
	was := map[string]*probe.Result{}
	for i := range old.Results {
		was[old.Results[i].ID] = &old.Results[i]
	}
	changed := map[string]int{} // pairs by the host that has changed
	differ := 0
	for i := range pairs {
		p := &pairs[i]
		r := was[p.ID]
		if r == nil || p.Waived != "" || !complete(r, &now.Spec) {
			continue
		}
		host := changedHost(old, now, p)
		switch {
		case host != "":
			changed[host]++
		case !slices.Equal(r.Path, p.Path) || r.PathKnown != p.PathKnown || r.From.Location != p.From.Location || r.To.Location != p.To.Location:
			differ++
		default:
			result := *r
			result.Pair = *p // what is expected may have changed; what was measured has not
			if old.Rules != now.Rules {
				result.Retests = nil // what they confirm is by the old rules
			}
			kept[p.ID] = result
		}
	}
	for i := range now.Hosts {
		if n := changed[now.Hosts[i].Name]; n > 0 {
			notes = append(notes, fmt.Sprintf("resume: the topology of %s has changed: %d of its pairs are measured again", now.Hosts[i].Name, n))
		}
	}
	if differ > 0 {
		notes = append(notes, fmt.Sprintf("resume: %d pairs take another path now and are measured again", differ))
	}
	return kept, notes
}

// complete says whether a result was measured to its end: to the largest size, which all kinds of pairs
// have.
func complete(r *probe.Result, spec *probe.Spec) bool {
	n, sizes := len(r.Bandwidth), spec.SizesBytes
	if r.Round < 1 || r.Error != "" || n == 0 && (r.Latency == nil || len(sizes) > 0) {
		return false
	}
	if n > 0 && len(sizes) > 0 && r.Bandwidth[n-1].SizeBytes < sizes[len(sizes)-1] {
		return false
	}
	for i := range r.Bandwidth {
		switch r.Bandwidth[i].Stopped {
		case probe.StoppedCI, probe.StoppedMaxSamples, probe.StoppedTime:
		default:
			return false
		}
	}
	return true
}

// changedHost names a host of a pair whose topology differs from that in the old report, or is not known;
// "" none.
func changedHost(old, now *probe.Report, p *probe.Pair) string {
	for _, host := range []string{p.From.Host, p.To.Host} {
		print := fingerprint(now, host)
		if print == "" || print != fingerprint(old, host) {
			return host
		}
	}
	return ""
}

// fingerprint is the fingerprint of a host's topology in a report, "" not known.
func fingerprint(r *probe.Report, host string) string {
	for i := range r.Hosts {
		if r.Hosts[i].Name == host {
			return r.Hosts[i].Fingerprint
		}
	}
	return ""
}
