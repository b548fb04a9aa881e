package show

import (
	"fmt"
	"strings"
)

// steps are the classes of a cell's colour: the part of what was expected that was
// measured is at least this. The last one has less, and one beyond is for nothing to
// compare with.
var steps = []float64{0.97, 0.93, 0.90, 0.80, 0.60, 0.40, 0.20}

const stepCount = 9 // with "less" and "nothing to compare with"

const noStep = stepCount - 1

func stepOf(part *float64) int {
	if part == nil {
		return noStep
	}
	for i, least := range steps {
		if *part >= least {
			return i
		}
	}
	return len(steps)
}

// palette is one set of colours. The worse a step, the darker it is (on dark ground: lighter), so that
// steps can be told apart without hue too.
type palette struct {
	steps      [stepCount]string
	ink        [stepCount]string // text on a step
	background string
	text       string
	faint      string
	alert      string
	traffic    string // what is congested and not broken
	line       string
}

// The contrast of every text with what it stands on is at least 4.5 to 1 (WCAG 2.1,
// level AA); TestContrast checks it.
var (
	light = palette{
		steps:      [stepCount]string{"#d7efe3", "#c3e3c4", "#e3dc92", "#f2c25f", "#ec9a45", "#da6f38", "#b3392f", "#7d1730", "#e4e7eb"},
		ink:        [stepCount]string{"#1b222c", "#1b222c", "#1b222c", "#1b222c", "#1b222c", "#11151b", "#ffffff", "#ffffff", "#1b222c"},
		background: "#ffffff", text: "#1b222c", faint: "#525c69", alert: "#b3190f", traffic: "#5b3fa8", line: "#8b96a3",
	}
	dark = palette{
		steps:      [stepCount]string{"#17372c", "#24482f", "#4a4a1c", "#6b5316", "#95571a", "#cf6a35", "#f28b66", "#ffc2ad", "#2a313a"},
		ink:        [stepCount]string{"#e8edf2", "#e8edf2", "#e8edf2", "#e8edf2", "#f5f8fa", "#0a0e13", "#0a0e13", "#0a0e13", "#e8edf2"},
		background: "#0a0e13", text: "#e8edf2", faint: "#a9b4c0", alert: "#ff9289", traffic: "#bda6ff", line: "#6b7785",
	}
)

// sheet are a palette's rules. A viewer that ignores style sheets finds the same
// colours, the light ones, in each element.
func (p *palette) sheet(indent string) string {
	var b strings.Builder
	rule := func(selector, format string, args ...any) {
		b.WriteString(indent + selector + "{" + fmt.Sprintf(format, args...) + "}\n")
	}
	rule(".tp-page", "fill:%s", p.background)
	for i := range p.steps {
		rule(fmt.Sprintf(".tp-s%d", i), "fill:%s", p.steps[i])
		rule(fmt.Sprintf(".tp-i%d", i), "fill:%s", p.ink[i])
	}
	rule(".tp-text", "fill:%s", p.text)
	rule(".tp-faint", "fill:%s", p.faint)
	rule(".tp-alert", "fill:%s", p.alert)
	rule(".tp-traffic", "fill:%s", p.traffic)
	rule(".tp-line", "stroke:%s", p.line)
	rule(".tp-edge", "stroke:%s", p.alert)
	return b.String()
}

// svgSheet is the style sheet of a heat map.
func svgSheet() string {
	return light.sheet("") + "@media (prefers-color-scheme: dark) {\n" + dark.sheet("  ") + "}\n"
}
