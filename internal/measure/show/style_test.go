package show

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

// Texts are legible on what they stand on (WCAG 2.1, level AA).
func TestContrast(t *testing.T) {
	for name, p := range map[string]*palette{"light": &light, "dark": &dark} {
		for i := range p.steps {
			if c := contrast(t, p.steps[i], p.ink[i]); c < 4.5 {
				t.Errorf("%s: step %d: %.2f", name, i, c)
			}
		}
		for what, text := range map[string]string{"text": p.text, "faint": p.faint, "alert": p.alert, "traffic": p.traffic} {
			if c := contrast(t, p.background, text); c < 4.5 {
				t.Errorf("%s: %s: %.2f", name, what, c)
			}
		}
	}
}

// A worse step is told from a better one without hue: from light to dark, or from dark to light.
func TestStepsWithoutHue(t *testing.T) {
	for name, p := range map[string]*palette{"light": &light, "dark": &dark} {
		sign := 1.0
		if p == &dark {
			sign = -1
		}
		for i := range len(steps) {
			if d := sign * (luminance(t, p.steps[i]) - luminance(t, p.steps[i+1])); d <= 0 {
				t.Errorf("%s: step %d is not told from step %d: %+.3f", name, i+1, i, d)
			}
		}
	}
}

func TestStepOf(t *testing.T) {
	for v, want := range map[float64]int{1.4: 0, 0.97: 0, 0.969: 1, 0.9: 2, 0.5: 5, 0.2: 6, 0.19: 7, 0: 7} {
		if got := stepOf(&v); got != want {
			t.Errorf("%g: %d, want %d", v, got, want)
		}
	}
	if stepOf(nil) != noStep {
		t.Error("what is not known has a step")
	}
}

// On paper nothing scrolls: what is wider than the page would be lost.
func TestPrint(t *testing.T) {
	_, print, ok := strings.Cut(pageCSS, "@media print")
	if !ok || !strings.Contains(print, ".scroll { overflow: visible; }") || !strings.Contains(print, "th, td { white-space: normal;") {
		t.Errorf("printed, tables keep what only scrolls: %s", print)
	}
}
