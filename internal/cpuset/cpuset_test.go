package cpuset

import (
	"math/bits"
	"slices"
	"strings"
	"testing"
)

func mustParse(t *testing.T, list string) Set {
	t.Helper()
	s, err := Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// hwlocMask is the mask as hwloc writes it, with a prefix before each group.
func hwlocMask(s Set) string { return "0x" + strings.ReplaceAll(s.Mask(), ",", ",0x") }

func TestListsAndMasks(t *testing.T) {
	for list, mask := range map[string]string{
		"": "00000000", "0": "00000001", "0-3,8": "0000010f", "0-31": "ffffffff", "32": "00000001,00000000", "63": "80000000,00000000",
		"0-7,16-23": "00ff00ff", "64-127": "ffffffff,ffffffff,00000000,00000000", "0,2,4": "00000015", "0-13,28-41": "000003ff,f0003fff",
	} {
		s := mustParse(t, list)
		if s.String() != list || s.Mask() != mask {
			t.Errorf("%q: list %q, mask %q, want %q", list, s, s.Mask(), mask)
		}
		if back, err := ParseMask(mask); err != nil || !back.Equal(s) {
			t.Errorf("%q read as %q, %v", mask, back, err)
		}
		for _, hwloc := range []string{mask, hwlocMask(s)} {
			if back, err := ParseHwlocMask(hwloc); err != nil || !back.Equal(s) {
				t.Errorf("%q read as %q, %v", hwloc, back, err)
			}
		}
	}
	for in, want := range map[string]string{" 0-1, 5 \n": "0-1,5", "8,0-3,2-4": "0-4,8", "65535": "65535", " ": "", "007": "7"} {
		if s := mustParse(t, in); s.String() != want {
			t.Errorf("%q read as %q, want %q", in, s, want)
		}
	}
	for in, want := range map[string]string{"0": "", "0x0": "", "0x1,,0x3": "0-1,64", "0xf...f,0x0": "32-63", "fff0000,00000000": "48-59", " 0x1\n": "0", ",": ""} {
		if s, err := ParseHwlocMask(in); err != nil || s.String() != want {
			t.Errorf("%q read as %q, %v, want %q", in, s, err, want)
		}
	}
	if s, err := ParseMask("0000,00000022,22222222"); err != nil || s.String() != "1,5,9,13,17,21,25,29,33,37" {
		t.Error(s, err)
	}
	if s, err := ParseMask(strings.Repeat("0,", 3000) + "1"); err != nil || s.String() != "0" {
		t.Error("zeros above the highest member:", s, err)
	}
}

func TestRefused(t *testing.T) {
	refuse := func(parse func(string) (Set, error), texts ...string) {
		t.Helper()
		for _, text := range texts {
			if s, err := parse(text); err == nil || !s.IsEmpty() || len(err.Error()) > 200 {
				t.Errorf("%.20q is read as %q, %v", text, s, err)
			}
		}
	}
	refuse(Parse, "a", "3-1", "0-4294967295", "65536", "1,,2", "-1", "0-", ",", "1 2", "+1", "1-2-3", strings.Repeat("x", 1000))
	refuse(ParseMask, "", "x", "123456789", "1,", ",1", "0x1", "-1", strings.Repeat("1,", 3000)+"1")
	refuse(ParseHwlocMask, "", "zz", "0x", "1,f...f", "123456789", strings.Repeat("0,", 2048)+"0", "-1", "+1")
	_, err := Parse("zz")
	if got := err.Error(); got != `"zz": want a list of CPUs like 0-3,8` {
		t.Error(got)
	}
}

func TestSets(t *testing.T) {
	a, b, none := mustParse(t, "0-3,40,200"), mustParse(t, "2-3"), Set{}
	for what, ok := range map[string]bool{
		"contains": a.Contains(40) && !a.Contains(41) && !a.Contains(-1) && !a.Contains(1<<30),
		"len":      a.Len() == 6 && none.Len() == 0,
		"ends":     a.First() == 0 && a.Last() == 200 && b.First() == 2 && b.Last() == 3 && none.First() == -1 && none.Last() == -1,
		"subset":   b.SubsetOf(a) && !a.SubsetOf(b) && none.SubsetOf(b) && a.SubsetOf(a) && !b.SubsetOf(none),
		"overlaps": a.Overlaps(b) && !a.Minus(b).Overlaps(b) && !a.Overlaps(none),
		"equal":    a.Minus(mustParse(t, "200")).Equal(mustParse(t, "0-3,40")) && !a.Equal(b) && a.Minus(a).Equal(none),
		"empty":    none.IsEmpty() && a.Minus(a).IsEmpty() && !a.IsEmpty() && a.Intersect(Of(5)).IsEmpty(),
	} {
		if !ok {
			t.Error(what)
		}
	}
	for want, got := range map[string]Set{
		"0-1,40,200": a.Minus(b), "0-4,40,200": a.Union(Of(4)), "2-3": a.Intersect(b), "5,9": Of(9, 5, 9, -1, Max+1),
		"0,3,64": FromWords(wordsOf(0, 3, 64)),
	} {
		if got.String() != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := slices.Collect(a.All()); !slices.Equal(got, []int{0, 1, 2, 3, 40, 200}) {
		t.Error(got)
	}
	if s := FromWords(make([]uint, 1<<20)); !s.IsEmpty() {
		t.Error(s)
	}
}

func wordsOf(members ...int) []uint {
	out := make([]uint, 8)
	for _, n := range members {
		out[n/bits.UintSize] |= 1 << (n % bits.UintSize)
	}
	return out
}

func TestKernelMask(t *testing.T) {
	for _, tt := range []struct {
		list  string
		width int
		want  string
	}{
		{"0-3", 4, "f"}, {"", 0, "0"}, {"0", 32, "00000001"}, {"0", 33, "0,00000001"}, {"40", 56, "000100,00000000"},
		{"", 64, "00000000,00000000"}, {"7", 2, "80"},
	} {
		s := mustParse(t, tt.list)
		if got := s.KernelMask(tt.width); got != tt.want {
			t.Errorf("%q, %d CPUs: %q, want %q", tt.list, tt.width, got, tt.want)
		}
		if back, err := ParseMask(tt.want); err != nil || !back.Equal(s) {
			t.Errorf("%q read as %q, %v", tt.want, back, err)
		}
	}
}

// fuzz holds a parser to what is accepted being accepted again, in each form.
func fuzz(f *testing.F, parse func(string) (Set, error), again func(Set) string, seeds ...string) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parse(text)
		if err != nil {
			return
		}
		if back, err := parse(again(s)); err != nil || !back.Equal(s) {
			t.Errorf("%q became %q, %v", text, back, err)
		}
		if !Of(slices.Collect(s.All())...).Equal(s) || s.Last() > Max || s.Len() > Max+1 {
			t.Errorf("%q: members %q", text, s)
		}
	})
}

func FuzzParse(f *testing.F) {
	fuzz(f, Parse, Set.String, "", "0-3,8", "0-4294967295", " 1 , 2", "65535")
}

func FuzzParseMask(f *testing.F) {
	fuzz(f, ParseMask, Set.Mask, "00000000,0000ffff", "f", "0,00000001", "1,")
}

func FuzzParseHwlocMask(f *testing.F) {
	fuzz(f, ParseHwlocMask, hwlocMask, "0xff,,0x1", "0xf...f,0x0", "0x0", ",")
}
