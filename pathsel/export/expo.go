package export

import (
	"bytes"
	"strconv"
	"strings"
)

// family is the samples of one metric. help is one line.
type family struct {
	name, help string
	samples    []sample
}

// sample is one value and its labels, in the order in which they are written.
type sample struct {
	labels []label
	value  int64
}

type label struct{ name, value string }

// labels makes label pairs: name, value, name, value. Empty values are left
// out, as Prometheus means the same by both.
func labels(pairs ...string) []label {
	var out []label
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out = append(out, label{pairs[i], escapeLabel(pairs[i+1])})
		}
	}
	return out
}

// metrics collects families in the order in which they are first named.
type metrics struct {
	families []*family
	byName   map[string]*family
}

// gauge adds a sample. All metrics here are gauges: states, not counts of events.
func (m *metrics) gauge(name, help string, value int64, l []label) {
	f := m.byName[name]
	if f == nil {
		f = &family{name: name, help: help}
		m.byName[name] = f
		m.families = append(m.families, f)
	}
	f.samples = append(f.samples, sample{l, value})
}

// text is the text exposition format. Of two samples with the same labels the
// first is kept: Prometheus refuses a file with both, and names from a host's
// files could make them.
// Source: prometheus.io/docs/instrumenting/exposition_formats.
func (m *metrics) text() []byte {
	var b bytes.Buffer
	for _, f := range m.families {
		b.WriteString("# HELP " + f.name + " " + f.help + "\n# TYPE " + f.name + " gauge\n")
		seen := map[string]bool{}
		for _, s := range f.samples {
			if id := s.id(f.name); !seen[id] {
				seen[id] = true
				b.WriteString(id + " " + strconv.FormatInt(s.value, 10) + "\n")
			}
		}
	}
	return b.Bytes()
}

// id is a sample's metric with its labels.
func (s *sample) id(metric string) string {
	pairs := make([]string, len(s.labels))
	for i, l := range s.labels {
		pairs[i] = l.name + `="` + l.value + `"`
	}
	if len(pairs) == 0 {
		return metric
	}
	return metric + "{" + strings.Join(pairs, ",") + "}"
}

var labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// escapeLabel makes any text a label's value.
func escapeLabel(s string) string {
	return labelEscapes.Replace(strings.ToValidUTF8(s, "\uFFFD"))
}
