package ui_test

import (
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/tui/internal/ui"
)

var nan = math.NaN()

func TestPaint(t *testing.T) {
	color, mono, bare := &ui.Look{Color: true}, &ui.Look{}, &ui.Look{Bare: true, Color: true}
	for _, tt := range []struct {
		l          *ui.Look
		s          ui.Style
		text, want string
	}{
		{color, ui.Bad, "x", "\x1b[1;31mx\x1b[m"},
		{mono, ui.Bad, "x", "\x1b[1mx\x1b[m"},
		{bare, ui.Bad, "x", "x"},
		{mono, ui.Good, "x", "x"},
		{color, ui.Plain, "x", "x"},
		{color, ui.Bad, "", ""},
		{color, ui.Style(99), "x", "x"},
		{mono, ui.Selected, "a" + color.Paint("b", ui.Good) + "c", "\x1b[7ma\x1b[32mb\x1b[m\x1b[7mc\x1b[m"},
	} {
		if got := tt.l.Paint(tt.text, tt.s); got != tt.want {
			t.Errorf("Paint(%q, %d) = %q, want %q", tt.text, tt.s, got, tt.want)
		}
	}
}

// No style is told from another by colour alone: it has an attribute or a mark, or is
// one of those that say "as it should be".
func TestNothingByColourAlone(t *testing.T) {
	mono := &ui.Look{}
	for _, s := range []ui.Style{ui.Middle, ui.Bad} {
		if mono.Mark(s) == " " || mono.Paint("x", s) == "x" {
			t.Errorf("style %d is a colour only", s)
		}
	}
	if mono.Mark(ui.Middle) == mono.Mark(ui.Bad) {
		t.Error("what is wrong has the mark of what is worth a look")
	}
}

func TestFit(t *testing.T) {
	l, ascii := &ui.Look{Color: true}, &ui.Look{ASCII: true}
	for _, tt := range []struct {
		l       *ui.Look
		s       string
		w       int
		want    string
		cutOnly string
	}{
		{l, "abc", 5, "abc  ", "abc"},
		{l, "abcdef", 5, "abcd…", "abcd…"},
		{l, "abcdef", 1, "…", "…"},
		{l, "abcdef", 0, "", ""},
		{l, "abcdef", -1, "", ""},
		{l, "ÄÖ", 3, "ÄÖ ", "ÄÖ"},
		{l, "日本語", 5, "日本…", "日本…"},
		{l, "日本語", 4, "日… ", "日…"},
		{ascii, "abcdef", 5, "ab...", "ab..."},
		{ascii, "abcdef", 3, "abc", "abc"},
		{l, l.Paint("abcdef", ui.Bad), 3, "\x1b[1;31mab…\x1b[m", "\x1b[1;31mab…\x1b[m"},
	} {
		if got := tt.l.Fit(tt.s, tt.w); got != tt.want {
			t.Errorf("Fit(%q, %d) = %q, want %q", tt.s, tt.w, got, tt.want)
		}
		if got := tt.l.Cut(tt.s, tt.w); got != tt.cutOnly {
			t.Errorf("Cut(%q, %d) = %q, want %q", tt.s, tt.w, got, tt.cutOnly)
		}
	}
	if got := l.FitRight("1.5", 5); got != "  1.5" {
		t.Errorf("FitRight: %q", got)
	}
}

func TestFitIsAlwaysThatWide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &ui.Look{ASCII: rapid.Bool().Draw(t, "ascii"), Color: true}
		w := rapid.IntRange(0, 40).Draw(t, "w")
		s := l.Paint(l.Safe(rapid.String().Draw(t, "s")), ui.Good)
		if got := ansi.StringWidth(l.Fit(s, w)); got != w {
			t.Fatalf("Fit(%q, %d) is %d columns wide", s, w, got)
		}
	})
}

// Whatever a name holds, what is drawn of it moves no cursor.
func TestSafeAndClean(t *testing.T) {
	l := &ui.Look{}
	for _, s := range []string{"\x1b[2J", "a\x1b]52;c;eA==\x07", "a\nb", "a\tb", "\u009b2J", "\u202e", "\xff", "\x1b[31", "\x1b[31m", "a\rb"} {
		if got := l.Safe(s); strings.ContainsAny(got, "\x1b\n\r\t\x07") || !utf8.ValidString(got) || strings.Contains(got, "\u009b") {
			t.Errorf("Safe(%q) = %q", s, got)
		}
	}
	for in, want := range map[string]string{
		"plain ▁ ä":           "plain ▁ ä",
		"\x1b[1;31mx\x1b[m y": "\x1b[1;31mx\x1b[m y",
		"\x1b[2Jx":            `\x1b[2Jx`,
		"x\x1b":               `x\x1b`,
		"\x1b[m\x1b[H\x1b[m":  "\x1b[m\\x1b[H\x1b[m",
		"a\nb":                `a\nb`,
		"\u009b2J":            `\u009b2J`,
	} {
		if got := ui.Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
	for _, l := range []*ui.Look{{}, {ASCII: true}} { // a long word, and a line that is cut after it
		if line := l.Cut(l.Safe(strings.Repeat("x", 200)+" and more"), 123); ui.Clean(line) != line {
			t.Errorf("Clean(%q) = %q", line, ui.Clean(line))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		got := ui.Clean(rapid.String().Draw(t, "s"))
		if again := ui.Clean(got); again != got || strings.ContainsAny(got, "\n\r\t\x07") {
			t.Fatalf("%q, then %q", got, again)
		}
	})
}

func TestSpark(t *testing.T) {
	l, ascii := &ui.Look{}, &ui.Look{ASCII: true}
	for _, tt := range []struct {
		values []float64
		top    float64
		w      int
		want   string
		ascii  string
	}{
		{[]float64{0, 1, 4, 8}, 8, 4, "▁▃▅█", "_:=#"},
		{[]float64{0, 1e-9, 8}, 8, 3, "▁▂█", "_.#"},
		{[]float64{1, 2}, 0, 4, "  ▅█", "  =#"},
		{[]float64{nan, 2, nan}, 0, 3, " █ ", " # "},
		{[]float64{9, 9, 1}, 2, 1, "▅", "="},
		{[]float64{0, 0}, 0, 2, "▁▁", "__"},
		{[]float64{99, math.Inf(1)}, 10, 2, "██", "##"},
		{[]float64{-1}, 10, 1, "▁", "_"},
		{nil, 0, 3, "   ", "   "},
		{[]float64{1}, nan, 1, "█", "#"},
		{[]float64{1}, 1, 0, "", ""},
	} {
		if got := l.Spark(tt.values, tt.top, tt.w); got != tt.want {
			t.Errorf("Spark(%v, %v, %d) = %q, want %q", tt.values, tt.top, tt.w, got, tt.want)
		}
		if got := ascii.Spark(tt.values, tt.top, tt.w); got != tt.ascii {
			t.Errorf("ASCII Spark(%v, %v, %d) = %q, want %q", tt.values, tt.top, tt.w, got, tt.ascii)
		}
	}
}

func TestBar(t *testing.T) {
	l, ascii := &ui.Look{}, &ui.Look{ASCII: true}
	for _, tt := range []struct {
		part  float64
		w     int
		want  string
		ascii string
	}{
		{0, 4, "░░░░", "...."},
		{0.001, 4, "█░░░", "#..."},
		{0.5, 4, "██░░", "##.."},
		{0.99, 4, "███░", "###."},
		{1, 4, "████", "####"},
		{7, 4, "████", "####"},
		{-1, 4, "░░░░", "...."},
		{nan, 4, "?   ", "?   "},
		{0.5, 0, "", ""},
	} {
		if got := l.Bar(tt.part, tt.w); got != tt.want {
			t.Errorf("Bar(%v, %d) = %q, want %q", tt.part, tt.w, got, tt.want)
		}
		if got := ascii.Bar(tt.part, tt.w); got != tt.ascii {
			t.Errorf("ASCII Bar(%v, %d) = %q, want %q", tt.part, tt.w, got, tt.ascii)
		}
	}
}

func TestFigures(t *testing.T) {
	l := &ui.Look{Units: units.Auto}
	r := topo.Rate(50_000_000_000)
	zero := topo.Rate(0)
	for _, tt := range []struct{ got, want string }{
		{l.Rate(nil), "?"}, {l.Rate(&r), "50.0 GB/s"}, {l.PortRate(&r), "400 Gb/s"}, {l.PortRate(&zero), "0 Gb/s"},
		{l.RateOf(nan), "?"}, {l.RateOf(math.Inf(1)), "?"}, {l.RateOf(1.5e9), "1.5 GB/s"},
		{l.PortRate(new(topo.Rate(900))), "<0.001 Gb/s"}, {l.RateOf(0), "0 GB/s"}, {l.PortRate(nil), "?"},
		{l.Expected(&r, topo.BasisTypical), "~50.0 GB/s"}, {l.Expected(nil, topo.BasisUnknown), "?"},
		{(&ui.Look{Units: units.Gibyte}).PortRate(&r), "46.6 GiB/s"},
		{l.Percent(0.371), "37%"}, {l.Percent(0), "0%"}, {l.Percent(1), "100%"}, {l.Percent(0.001), "<1%"}, {l.Percent(0.999), ">99%"},
		{l.Percent(nan), "?"}, {l.Percent(1.2), "120%"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

// The key goes through all systems and comes back.
func TestNextUnits(t *testing.T) {
	seen := map[units.System]bool{}
	for s := units.Auto; !seen[s]; s = ui.Next(s) {
		seen[s] = true
	}
	if len(seen) != len(units.Systems()) {
		t.Errorf("the key reaches %v of %v", seen, units.Systems())
	}
}

// With --ascii nothing else is drawn.
func TestASCII(t *testing.T) {
	l := &ui.Look{ASCII: true}
	all := l.Branch() + l.Last() + l.Pipe() + l.Gap() + l.Folded() + l.Open() + l.Cursor() + l.Arrow() + l.Dots() + l.HLine() + l.VLine() +
		l.Safe("ä") + l.Spark([]float64{0, 1}, 1, 3) + l.Bar(0.5, 3)
	for _, r := range all {
		if r < ' ' || r > '~' {
			t.Errorf("%q is drawn with --ascii", r)
		}
	}
}
