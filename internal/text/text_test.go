package text

import (
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestPrintable(t *testing.T) {
	for _, tt := range []struct{ in, want, ascii string }{
		{"", "", ""},
		{"mlx5_0 / NVIDIA H100", "mlx5_0 / NVIDIA H100", "mlx5_0 / NVIDIA H100"},
		{"café µ ±", "café µ ±", `caf\u00e9 \u00b5 \u00b1`},
		{"\x1b]0;owned\x07", `\x1b]0;owned\a`, `\x1b]0;owned\a`},
		{"a\nb\r\tc\x00\x7f", `a\nb\r\tc\x00\x7f`, `a\nb\r\tc\x00\x7f`},
		{"\u009b31m", `\u009b31m`, `\u009b31m`},
		{"right\u202eleft\u2066\u200b", `right\u202eleft\u2066\u200b`, `right\u202eleft\u2066\u200b`},
		{"\x9b\xff ok", `\x9b\xff ok`, `\x9b\xff ok`},
		{"\xed\xa0\x80", `\xed\xa0\x80`, `\xed\xa0\x80`},
		{"no\u00a0break\u2028", `no\u00a0break\u2028`, `no\u00a0break\u2028`},
		{"\ufffd", "\ufffd", `\ufffd`},
		{"\U000e0041", `\U000e0041`, `\U000e0041`},
		{`C:\x1b`, `C:\x1b`, `C:\x1b`},
	} {
		if got := Printable(tt.in); got != tt.want {
			t.Errorf("Printable(%q) = %q, want %q", tt.in, got, tt.want)
		}
		if got := ASCII(tt.in); got != tt.ascii {
			t.Errorf("ASCII(%q) = %q, want %q", tt.in, got, tt.ascii)
		}
	}
}

func TestPlural(t *testing.T) {
	for _, tt := range []struct {
		n    int
		one  string
		many []string
		want string
	}{
		{0, "port", nil, "0 ports"},
		{1, "port", nil, "1 port"},
		{2, "port", nil, "2 ports"},
		{-1, "port", nil, "-1 ports"},
		{1, "switch", nil, "1 switch"},
		{3, "leaf switch", nil, "3 leaf switches"},
		{2, "NVSwitch", nil, "2 NVSwitches"},
		{2, "crash", nil, "2 crashes"},
		{2, "bus", nil, "2 buses"},
		{2, "box", nil, "2 boxes"},
		{1, "retry", []string{"retries"}, "1 retry"},
		{2, "retry", []string{"retries"}, "2 retries"},
	} {
		if got := Plural(tt.n, tt.one, tt.many...); got != tt.want {
			t.Errorf("Plural(%d, %q) = %q, want %q", tt.n, tt.one, got, tt.want)
		}
	}
	if got := Plural(int64(1)<<40, "byte"); got != "1099511627776 bytes" {
		t.Error(got)
	}
}

func TestJoinAndList(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e"}
	for _, tt := range []struct {
		n, most    int
		join, list string
	}{
		{0, 2, "", ""},
		{1, 2, "a", "a"},
		{2, 2, "a and b", "a, b"},
		{3, 2, "a, b and c", "a, b, c"},
		{4, 2, "a, b and 2 more", "a, b and 2 more"},
		{5, 2, "a, b and 3 more", "a, b and 3 more"},
		{5, 4, "a, b, c, d and e", "a, b, c, d, e"},
		{5, 1, "a and 4 more", "a and 4 more"},
		{1, 0, "a", "a"},
		{2, 0, "2 more", "2 more"},
		{2, -3, "2 more", "2 more"},
	} {
		if got := Join(names[:tt.n], tt.most); got != tt.join {
			t.Errorf("Join(%d names, %d) = %q, want %q", tt.n, tt.most, got, tt.join)
		}
		if got := List(names[:tt.n], tt.most); got != tt.list {
			t.Errorf("List(%d names, %d) = %q, want %q", tt.n, tt.most, got, tt.list)
		}
	}
}

func TestCutAndPad(t *testing.T) {
	for _, tt := range []struct {
		in    string
		width int
		end   string
		want  string
	}{
		{"short", 5, Ellipsis, "short"},
		{"longer", 5, Ellipsis, "long…"},
		{"longer", 5, Dots, "lo..."},
		{"longer", 3, Dots, "..."},
		{"longer", 2, Dots, "lo"},
		{"longer", 1, Ellipsis, "…"},
		{"longer", 0, Ellipsis, ""},
		{"longer", -1, Ellipsis, ""},
		{"", 0, Ellipsis, ""},
		{"日本語", 6, Ellipsis, "日本語"},
		{"日本語", 5, Ellipsis, "日本…"},
		{"日本語", 4, Ellipsis, "日…"},
		{"日本語", 1, "", ""},
		{"e\u0301e\u0301", 2, Ellipsis, "e\u0301e\u0301"},
		{"±µ·…─│≥", 7, Ellipsis, "±µ·…─│≥"},
	} {
		if got := Cut(tt.in, tt.width, tt.end); got != tt.want {
			t.Errorf("Cut(%q, %d, %q) = %q, want %q", tt.in, tt.width, tt.end, got, tt.want)
		}
	}
	for _, tt := range []struct {
		in          string
		width       int
		right, left string
	}{
		{"ab", 4, "ab  ", "  ab"},
		{"ab", 2, "ab", "ab"},
		{"abc", 2, "abc", "abc"},
		{"日", 4, "日  ", "  日"},
		{"", -1, "", ""},
	} {
		if right, left := Pad(tt.in, tt.width), PadLeft(tt.in, tt.width); right != tt.right || left != tt.left {
			t.Errorf("%q to %d: %q, %q, want %q, %q", tt.in, tt.width, right, left, tt.right, tt.left)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, tt := range []struct {
		in    string
		width int
		want  []string
	}{
		{"", 10, []string{""}},
		{"  \n ", 10, []string{""}},
		{"one two three", 7, []string{"one two", "three"}},
		{"one two three", 13, []string{"one two three"}},
		{"one two three", 12, []string{"one two", "three"}},
		{" one\n\ttwo  three ", 20, []string{"one two three"}},
		{"a unreasonably long word", 5, []string{"a", "unreasonably", "long", "word"}},
		{"at 50\u00a0GB/s or less", 8, []string{"at", "50\u00a0GB/s", "or less"}},
		{"日本 語", 5, []string{"日本", "語"}},
		{"a b", 0, []string{"a", "b"}},
	} {
		if diff := cmp.Diff(tt.want, Wrap(tt.in, tt.width)); diff != "" {
			t.Errorf("Wrap(%q, %d) (-want +got):\n%s", tt.in, tt.width, diff)
		}
	}
}

func TestColumns(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rows  [][]string
		specs []Column
		want  []string
	}{
		{"nothing", nil, nil, []string{}},
		{"left", [][]string{{"rank", "port", "why"}, {"1", "mlx5_10", "it is near"}, {"2", "", ""}}, nil,
			[]string{"rank  port     why", "1     mlx5_10  it is near", "2"}},
		{"right from the second on", [][]string{{"host", "GB/s", "n"}, {"a", "1.5", "100"}, {"bcdef", "22.5", "7"}}, []Column{{}, {Right: true}},
			[]string{"host   GB/s    n", "a       1.5  100", "bcdef  22.5    7"}},
		{"one at the right", [][]string{{"a", "10", "left"}, {"b", "5", "left too"}}, []Column{{}, {Right: true}, {}},
			[]string{"a  10  left", "b   5  left too"}},
		{"bounded", [][]string{{"a", "b"}, {"longer than most", "c"}, {"abc", "d"}}, []Column{{Most: 4}},
			[]string{"a    b", "longer than most  c", "abc  d"}},
		{"ragged", [][]string{{"a", "b", "c"}, {"a", "a last cell widens nothing"}, {}, {"alone, too"}}, nil,
			[]string{"a  b  c", "a  a last cell widens nothing", "", "alone, too"}},
		{"cells, not runes", [][]string{{"日本", "x"}, {"e\u0301", "y"}}, nil,
			[]string{"日本  x", "e\u0301     y"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Columns(tt.rows, tt.specs...)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestWrapColumns(t *testing.T) {
	rows := [][]string{{"rank", "port", "why"}, {"1", "mlx5_0", "nearest"}, {"2", "mlx5_10", "equal to mlx5_9 in all else, later by name"}, {"3 more"}, {"it stands alone and is longer than that"}, {}}
	for _, tt := range []struct {
		width int
		want  [][]string
	}{
		{0, [][]string{{"rank  port     why"}, {"1     mlx5_0   nearest"}, {"2     mlx5_10  equal to mlx5_9 in all else, later by name"}, {"3 more"}, {"it stands alone and is longer than that"}, {""}}},
		{40, [][]string{{"rank  port     why"}, {"1     mlx5_0   nearest"}, {"2     mlx5_10  equal to mlx5_9 in all", "               else, later by name"}, {"3 more"}, {"it stands alone and is longer than that"}, {""}}},
		{30, [][]string{{"rank  port     why"}, {"1     mlx5_0   nearest"}, {"2     mlx5_10", "      equal to mlx5_9 in all", "      else, later by name"}, {"3 more"}, {"it stands alone and is longer", "than that"}, {""}}},
	} {
		if diff := cmp.Diff(tt.want, WrapColumns(rows, tt.width)); diff != "" {
			t.Errorf("width %d (-want +got):\n%s", tt.width, diff)
		}
	}
	lanes := [][]string{{"local", "remote", "class", "verdict", "why"}, {"a port of a long name", "mlx5_10", "PXB/PXB", "failover", "a link on its way is full of chosen lanes"}, {"mlx5_0", "mlx5_0", "X", "chosen", "best"}}
	wantLanes := [][]string{{"local                  remote   class", "      verdict  why"}, {"a port of a long name  mlx5_10  PXB/PXB", "      failover  a link on its way is full of", "      chosen lanes"},
		{"mlx5_0                 mlx5_0   X", "      chosen  best"}}
	if diff := cmp.Diff(wantLanes, WrapColumns(lanes, 44)); diff != "" {
		t.Errorf("cells before the last move below too (-want +got):\n%s", diff)
	}
	want := [][]string{{"removed  eno1  a controller of some maker", "               or other"}} // empty cells take no line
	if diff := cmp.Diff(want, WrapColumns([][]string{{"removed", "eno1", "a controller of some maker or other", ""}}, 41)); diff != "" {
		t.Errorf("an empty last cell (-want +got):\n%s", diff)
	}
}

func TestTSV(t *testing.T) {
	rows := [][]string{{"KIND", "NAME"}, {"gpu", "a\tb\nc\x1b[2J"}, {"", "größer", "x"}, {}}
	want := []string{"KIND\tNAME", `gpu` + "\t" + `a\tb\nc\x1b[2J`, "\tgrößer\tx", ""}
	if diff := cmp.Diff(want, TSV(rows)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"", "mlx5_0", "\x1b]0;owned\x07 x", "\u202eright\u2066 left", "\x9b\xff", "日本語 e\u0301", "👩‍👩‍👧‍👦👍🏽 🇩🇪 a \ufe0f", "50\u00a0GB/s"} {
		for _, width := range []int{-1, 0, 1, 7, 80} {
			f.Add(s, width)
		}
	}
	f.Fuzz(func(t *testing.T, s string, width int) {
		if p := Printable(s); !utf8.ValidString(p) || strings.ContainsFunc(p, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("Printable(%q) = %q", s, p)
		} else if again := Printable(p); again != p {
			t.Errorf("Printable(%q) = %q: it was printable", p, again)
		}
		if a := ASCII(s); strings.ContainsFunc(a, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("ASCII(%q) = %q", s, a)
		}
		for _, end := range []string{Ellipsis, Dots, ""} {
			if c := Cut(s, width, end); Width(c) > max(0, width) {
				t.Errorf("Cut(%q, %d, %q) = %q: %d cells", s, width, end, c, Width(c))
			}
		}
		blank := func(r rune) bool { return strings.ContainsRune(" \t\r\n", r) }
		var words []string
		for _, line := range Wrap(s, width) {
			in := strings.FieldsFunc(line, blank)
			if words = append(words, in...); len(in) > 1 && Width(line) > width {
				t.Errorf("Wrap(%q, %d): %q has %d cells", s, width, line, Width(line))
			}
		}
		if !slices.Equal(words, strings.FieldsFunc(s, blank)) {
			t.Errorf("Wrap(%q, %d): words %q", s, width, words)
		}
	})
}
