package cli

import (
	"io"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/pathsel/export"
)

// metrics writes a host as Prometheus metrics, with what doctor finds.
func metrics(w io.Writer, t *topo.Topology, allPairs bool) error {
	h, err := pathsel.New(t, pathsel.Options{})
	if err != nil {
		return err
	}
	report, err := doctor.Run(t, doctor.Options{})
	if err != nil {
		return err
	}
	return export.Prometheus(w, h, export.PrometheusOptions{AllPairs: allPairs, Checks: checksOf(report)})
}

// checksOf counts the findings of each check by severity. A check that found
// nothing counts 0 of the worst that it could have found.
func checksOf(r *doctor.Report) []export.Check {
	var out []export.Check
	for i := range r.Checks {
		c := &r.Checks[i]
		counts := map[doctor.Severity]int{}
		for _, f := range c.Findings {
			counts[f.Severity]++
		}
		switch c.Status {
		case doctor.OK:
			counts[c.Worst] = 0
		case doctor.CouldNotCheck:
			out = append(out, export.Check{Code: string(c.Code), Unknown: true})
		}
		for _, s := range []doctor.Severity{doctor.Error, doctor.Warning, doctor.Info} {
			if n, ok := counts[s]; ok {
				out = append(out, export.Check{Code: string(c.Code), Severity: string(s), Findings: n})
			}
		}
	}
	return out
}
