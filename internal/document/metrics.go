package document

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/internal/text"
)

// ContentType is how HTTP names the format.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// MetricKind is the type of a metric.
type MetricKind string

// Kinds of metrics.
const (
	Counter MetricKind = "counter" // only rises, and its name ends in _total
	Gauge   MetricKind = "gauge"
)

// MetricValue is a sample's value as it is written.
type MetricValue string

// IntValue is a whole number, exact.
func IntValue(v int64) MetricValue { return MetricValue(strconv.FormatInt(v, 10)) }

// FloatValue is a number without exponent and with no more digits than it takes to tell it from
// its neighbours.
func FloatValue(v float64) MetricValue { return MetricValue(strconv.FormatFloat(v, 'f', -1, 64)) }

// BoolValue is 1 for true and 0 for false.
func BoolValue(v bool) MetricValue {
	if v {
		return "1"
	}
	return "0"
}

// Metrics collects samples. The zero value is empty and ready to use.
type Metrics struct {
	families []*family
	byName   map[string]*family
}

// family is the samples of one metric.
type family struct {
	name, help string
	kind       MetricKind
	lines      []string
	seen       map[string]bool // metrics with labels
}

// Add appends a sample with label pairs: name, value, name, value, in the order in which
// they are written. A label without value is left out, as Prometheus means the same by
// both; any other text is made a valid value. Of two samples with the same labels the first
// is kept: Prometheus refuses a text with both, and labels may come from elsewhere. Kind
// and help are those of the first sample of a name.
func (t *Metrics) Add(name string, kind MetricKind, help string, value MetricValue, labels ...string) {
	f := t.byName[name]
	if f == nil {
		f = &family{name: name, kind: kind, help: help, seen: map[string]bool{}}
		if t.byName == nil {
			t.byName = map[string]*family{}
		}
		t.byName[name] = f
		t.families = append(t.families, f)
	}
	var pairs []string
	for i := 0; i+1 < len(labels); i += 2 {
		if labels[i+1] != "" {
			pairs = append(pairs, labels[i]+`="`+escapeMetric(labelEscapes, labels[i+1])+`"`)
		}
	}
	series := name
	if len(pairs) > 0 {
		series += "{" + strings.Join(pairs, ",") + "}"
	}
	if !f.seen[series] {
		f.seen[series] = true
		f.lines = append(f.lines, series+" "+string(value)+"\n")
	}
}

var (
	labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
)

// escapeMetric makes text valid. What a terminal would obey or not show, for which the format has no escapes, is replaced by
// its name in Go, so that two names stay two.
func escapeMetric(r *strings.Replacer, s string) string {
	lines := strings.Split(strings.ToValidUTF8(s, "\uFFFD"), "\n")
	for i, line := range lines {
		lines[i] = text.Printable(line)
	}
	return r.Replace(strings.Join(lines, "\n"))
}

// Bytes is the text: metrics in the order in which their first samples were added, and the
// samples of each in the order in which they were.
func (t *Metrics) Bytes() []byte {
	var b bytes.Buffer
	for _, f := range t.families {
		b.WriteString("# HELP " + f.name + " " + escapeMetric(helpEscapes, f.help) + "\n# TYPE " + f.name + " " + string(f.kind) + "\n")
		for _, line := range f.lines {
			b.WriteString(line)
		}
	}
	return b.Bytes()
}
