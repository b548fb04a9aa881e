package picture

import (
	"fmt"
	"strings"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// paintDiagram are the colours of one kind of shape.
type paintDiagram struct{ fill, stroke string }

// palette is one set of colours.
type palette struct {
	looks      [lookCount]paintDiagram
	text       string
	faint      string
	alert      string // text and signs
	background string
	lines      [4]string // by wireState
	sign       string    // the mark in a warning sign
}

// lookClasses name the looks in the style sheet.
var lookClasses = [lookCount]string{
	lookPackage: "tc-package", lookNUMA: "tc-numa", lookUnknown: "tc-unknown", lookVirtual: "tc-virtual", lookRoot: "tc-root",
	lookSwitch: "tc-switch", lookCard: "tc-card", lookGPU: "tc-gpu", lookNIC: "tc-nic", lookSoftware: "tc-software", lookSmall: "tc-small",
	lookDrive: "tc-drive", lookFabric: "tc-fabric", lookBar: "tc-bar",
}

var wireClasses = [4]string{wireRead: "tc-link", wireTypical: "tc-typical", wireUnknown: "tc-guess", wireDegraded: "tc-bad"}

// The contrast of every text with what it stands on is at least 4.5 to 1
// (WCAG 2.1, level AA); TestContrast checks it.
var light = palette{
	looks: [lookCount]paintDiagram{
		lookPackage: {"#f0f3f6", "#8b96a3"}, lookNUMA: {"#fafbfc", "#b4bdc7"}, lookUnknown: {"#fff6f5", "#b5655c"},
		lookVirtual: {"#f7f7f9", "#a3a9b3"}, lookRoot: {"#dfe5eb", "#8b96a3"}, lookSwitch: {"#fdf0cf", "#b58412"},
		lookCard: {"#eef5ff", "#8fb4e3"}, lookGPU: {"#d9f2dc", "#2f8a45"}, lookNIC: {"#d8e8fd", "#2f6cc4"}, lookSoftware: {"#f0f2f5", "#2f6cc4"},
		lookSmall: {"#f0f2f5", "#9aa4b0"}, lookDrive: {"#ece5fa", "#8767c2"}, lookFabric: {"#cdeee6", "#2a8576"}, lookBar: {"#cdeee6", "#2a8576"},
	},
	text: "#1b222c", faint: "#525c69", alert: "#b3190f", background: "#ffffff",
	lines: [4]string{wireRead: "#5b6672", wireTypical: "#5b6672", wireUnknown: "#7a8592", wireDegraded: "#d1271b"},
	sign:  "#ffffff",
}

var dark = palette{
	looks: [lookCount]paintDiagram{
		lookPackage: {"#161c24", "#6b7785"}, lookNUMA: {"#0f141a", "#465160"}, lookUnknown: {"#24161a", "#c0736a"},
		lookVirtual: {"#14191f", "#5a6572"}, lookRoot: {"#29323d", "#77838f"}, lookSwitch: {"#3a2e10", "#d0a02e"},
		lookCard: {"#0e2036", "#3e6ea8"}, lookGPU: {"#12351d", "#45b163"}, lookNIC: {"#10304f", "#5a9fee"}, lookSoftware: {"#1c232c", "#5a9fee"},
		lookSmall: {"#1c232c", "#6b7785"}, lookDrive: {"#2a2145", "#9c80d8"}, lookFabric: {"#0d3832", "#3fb3a0"}, lookBar: {"#0d3832", "#3fb3a0"},
	},
	text: "#e8edf2", faint: "#a9b4c0", alert: "#ff9289", background: "#0a0e13",
	lines: [4]string{wireRead: "#98a4b1", wireTypical: "#98a4b1", wireUnknown: "#818d9a", wireDegraded: "#ff6f63"},
	sign:  "#0a0e13",
}

// colors are the palettes of an image: one that stands in each element, and
// one that a viewer may turn to, nil for none.
type colors struct {
	first  *palette
	second *palette // where the viewer prefers dark
}

func palettesOf(t Theme) (colors, error) {
	switch t {
	case "", ThemeAuto:
		return colors{&light, &dark}, nil
	case ThemeLight:
		return colors{&light, nil}, nil
	case ThemeDark:
		return colors{&dark, nil}, nil
	}
	return colors{}, pkgerr.Errorf("diagram", "theme %q: want %s", t, strings.Join(Themes(), ", "))
}

// sheet are a palette's rules. A viewer that ignores style sheets finds the
// same colours in each element.
func (p *palette) sheet(indent string) string {
	var b strings.Builder
	rule := func(selector, format string, args ...any) {
		b.WriteString(indent + selector + "{" + fmt.Sprintf(format, args...) + "}\n")
	}
	rule(".tc-page", "fill:%s", p.background)
	for l, c := range lookClasses {
		if c != "" {
			rule("."+c, "fill:%s;stroke:%s", p.looks[l].fill, p.looks[l].stroke)
		}
	}
	rule(".tc-down", "stroke:%s", p.lines[wireDegraded])
	for s, c := range wireClasses {
		rule("."+c, "stroke:%s", p.lines[s])
	}
	rule(".tc-text", "fill:%s", p.text)
	rule(".tc-faint", "fill:%s", p.faint)
	rule(".tc-alert", "fill:%s", p.alert)
	rule(".tc-sign", "fill:%s", p.sign)
	return b.String()
}
