package document

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/internal/text"
)

// ContentType is how HTTP names the format.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Kind is the type of a metric.
type Kind string

// Kinds of metrics.
const (
	Counter Kind = "counter" // only rises, and its name ends in _total
	Gauge   Kind = "gauge"
)

// Value is a sample's value as it is written.
type Value string

// Int is a whole number, exact.
func Int(v int64) Value { return Value(strconv.FormatInt(v, 10)) }

// Float is a number without exponent and with no more digits than it takes to tell it from
// its neighbours.
func Float(v float64) Value { return Value(strconv.FormatFloat(v, 'f', -1, 64)) }

// Bool is 1 for true and 0 for false.
func Bool(v bool) Value {
	if v {
		return "1"
	}
	return "0"
}

// Text collects samples. The zero Text is empty and ready to use.
type Text struct {
	families []*family
	byName   map[string]*family
}

// family is the samples of one metric.
type family struct {
	name, help string
	kind       Kind
	lines      []string
	seen       map[string]bool // metrics with labels
}

// Add appends a sample with label pairs: name, value, name, value, in the order in which
// they are written. A label without value is left out, as Prometheus means the same by
// both; any other text is made a valid value. Of two samples with the same labels the first
// is kept: Prometheus refuses a text with both, and labels may come from elsewhere. Kind
// and help are those of the first sample of a name.
func (t *Text) Add(name string, kind Kind, help string, value Value, labels ...string) {
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
			pairs = append(pairs, labels[i]+`="`+escape(labelEscapes, labels[i+1])+`"`)
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

// escape makes text valid. What a terminal would obey or not show, for which the format has no escapes, is replaced by
// its name in Go, so that two names stay two.
func escape(r *strings.Replacer, s string) string {
	lines := strings.Split(strings.ToValidUTF8(s, "\uFFFD"), "\n")
	for i, line := range lines {
		lines[i] = text.Printable(line)
	}
	return r.Replace(strings.Join(lines, "\n"))
}

// Bytes is the text: metrics in the order in which their first samples were added, and the
// samples of each in the order in which they were.
func (t *Text) Bytes() []byte {
	var b bytes.Buffer
	for _, f := range t.families {
		b.WriteString("# HELP " + f.name + " " + escape(helpEscapes, f.help) + "\n# TYPE " + f.name + " " + string(f.kind) + "\n")
		for _, line := range f.lines {
			b.WriteString(line)
		}
	}
	return b.Bytes()
}
