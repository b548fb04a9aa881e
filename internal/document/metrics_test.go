package document

import (
	"math"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	var x Metrics
	if got := x.Bytes(); len(got) != 0 {
		t.Errorf("%q", got)
	}
	x.Add("b_total", Counter, `What\`+"\nit is.", IntValue(math.MaxInt64), "name", "a\"b\\c\nd\xff\u202e\x1b", "none", "")
	x.Add("a", Gauge, "Other.", FloatValue(0.25))
	x.Add("b_total", Gauge, "not this one", IntValue(2), "name", "b")
	x.Add("b_total", Counter, "", IntValue(3), "name", "b", "none", "") // as the one before
	x.Add("a", Gauge, "", FloatValue(7))
	want := `# HELP b_total What\\\nit is.
# TYPE b_total counter
b_total{name="a\"b\\c\nd` + "\uFFFD" + `\\u202e\\x1b"} 9223372036854775807
b_total{name="b"} 2
# HELP a Other.
# TYPE a gauge
a 0.25
`
	if got := string(x.Bytes()); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestValues(t *testing.T) {
	for want, got := range map[MetricValue]MetricValue{
		"0": IntValue(0), "-9223372036854775808": IntValue(math.MinInt64), "1": BoolValue(true), "1000000000000000000000": FloatValue(1e21), "0.1": FloatValue(0.1),
		"+Inf": FloatValue(math.Inf(1)), "NaN": FloatValue(math.NaN()), "50000000000": FloatValue(5e10),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if BoolValue(false) != "0" {
		t.Error("false")
	}
}

var sample = regexp.MustCompile(`^m\{l="(?:[^"\\]|\\["\\n])*"\} 1$`)

func FuzzLabel(f *testing.F) {
	for _, s := range []string{"mlx5_0", "a\"b", "a\\", "x\n# HELP y", "\xff", "{", "} 1", ",", "\r\n", "\u2028", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		var x Metrics
		x.Add("m", Gauge, value, IntValue(1), "l", value)
		lines := strings.Split(strings.TrimSuffix(string(x.Bytes()), "\n"), "\n")
		if len(lines) != 3 || !utf8.ValidString(lines[0]) || value != "" && !sample.MatchString(lines[2]) {
			t.Errorf("%q", lines)
		}
	})
}
