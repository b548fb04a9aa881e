package bitmap

import (
	"strings"
	"testing"
)

func TestMasksAndLists(t *testing.T) {
	for mask, list := range map[string]string{
		"00000001": "0", "0003ff,f0003fff": "0-13,28-41", "fff0000,00000000": "48-59", "80000000,00000000": "63",
		"ffffffff,ffffffff": "0-63", "0": "", "0x0": "", "0x1,,0x3": "0-1,64", "0xf...f,0x0": "32-63", "0x00ff00ff": "0-7,16-23",
	} {
		s, err := Parse(mask)
		if err != nil || s.List() != list {
			t.Errorf("%s: %q %v, want %q", mask, s.List(), err, list)
			continue
		}
		for _, prefix := range []string{"", "0x"} {
			if back, err := Parse(s.Hex(prefix)); err != nil || !back.Equal(s) {
				t.Errorf("%s: written as %s and read as %q %v", mask, s.Hex(prefix), back.List(), err)
			}
		}
		if back, err := ParseList(list); err != nil || !back.Equal(s) {
			t.Errorf("%s: list %s read as %q %v", mask, list, back.List(), err)
		}
	}
}

func TestBadMasks(t *testing.T) {
	for _, mask := range []string{"", "zz", "0x", "1,f...f", "123456789", strings.Repeat("0,", 1024) + "0", "-1", "+1"} {
		if s, err := Parse(mask); err == nil {
			t.Errorf("%.20q is read as %q", mask, s.List())
		}
	}
	for _, list := range []string{"a", "3-1", "1-", "-1", "0-99999999", "1,,2"} {
		if s, err := ParseList(list); err == nil {
			t.Errorf("%q is read as %q", list, s.List())
		}
	}
}

func TestSets(t *testing.T) {
	a, _ := ParseList("0-3,40")
	b, _ := ParseList("2-3")
	if !a.Contains(b) || b.Contains(a) || a.Len() != 5 || !a.Has(40) || a.Has(41) || a.Has(-1) || a.Has(4000) {
		t.Error("members")
	}
	if got := a.Minus(b).List(); got != "0-1,40" {
		t.Errorf("minus %q", got)
	}
	if got := b.Minus(a).Union(b).List(); got != "2-3" {
		t.Errorf("union %q", got)
	}
}
