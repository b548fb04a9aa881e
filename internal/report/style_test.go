package report

import (
	"math"
	"strconv"
	"strings"
	"testing"
)

// luminance is that of WCAG 2.1.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	v, err := strconv.ParseUint(hex[1:], 16, 32)
	if err != nil || len(hex) != 7 {
		t.Fatalf("%q is no colour", hex)
	}
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		c := float64(v>>(16-8*i)&0xff) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// Texts are legible on what they stand on (WCAG 2.1, level AA), on light ground and on dark.
func TestContrast(t *testing.T) {
	for i := range steps {
		if light, dark := contrast(t, steps[i].fill.light, steps[i].ink.light), contrast(t, steps[i].fill.dark, steps[i].ink.dark); min(light, dark) < 4.5 {
			t.Errorf("step %d: %.2f and %.2f", i, light, dark)
		}
	}
	for _, c := range []color{ink, faint, alert, traffic} {
		if light, dark := contrast(t, ground.light, c.light), contrast(t, ground.dark, c.dark); min(light, dark) < 4.5 {
			t.Errorf("%s: %.2f and %.2f", c.class, light, dark)
		}
	}
}

// A worse step is told from a better one without hue: from light to dark, or from dark to light.
func TestStepsWithoutHue(t *testing.T) {
	for i := range Worst {
		light, dark := luminance(t, steps[i].fill.light)-luminance(t, steps[i+1].fill.light), luminance(t, steps[i+1].fill.dark)-luminance(t, steps[i].fill.dark)
		if min(light, dark) <= 0 {
			t.Errorf("step %d is not told from step %d: %+.3f and %+.3f", i+1, i, light, dark)
		}
	}
}

// On paper nothing scrolls: what is wider than the page would be lost.
func TestPrint(t *testing.T) {
	_, print, ok := strings.Cut(pageCSS, "@media print")
	if !ok || !strings.Contains(print, ".scroll { overflow: visible; }") || !strings.Contains(print, "th, td { white-space: normal;") {
		t.Errorf("printed, tables keep what only scrolls: %s", print)
	}
}
