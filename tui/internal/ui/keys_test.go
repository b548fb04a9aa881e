package ui_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

func TestBindings(t *testing.T) {
	seen, actions := map[string]ui.Action{}, map[ui.Action]bool{}
	for _, b := range ui.Map() {
		if actions[b.Action] {
			t.Errorf("%s: two bindings", b.Action)
		}
		actions[b.Action] = true
		if b.Help == "" || b.Hint == "" || len(b.Keys) == 0 || !slices.Contains(ui.Groups(), b.Group) {
			t.Errorf("%s: no help, no hint, no key or no group: %+v", b.Action, b)
		}
		for _, k := range b.Keys {
			if other, ok := seen[k]; ok {
				t.Errorf("%q is %s and %s", k, other, b.Action)
			}
			seen[k] = b.Action
			if ui.KeyOf(k) != b.Action {
				t.Errorf("Of(%q) = %q, want %q", k, ui.KeyOf(k), b.Action)
			}
		}
	}
	if ui.KeyOf("f12") != "" {
		t.Error("an unbound key is an action")
	}
	for i, a := range ui.ViewActions() {
		if want := string(rune('1' + i)); ui.Get(a).Short(true) != want {
			t.Errorf("%s: key %q, want %q", a, ui.Get(a).Short(true), want)
		}
	}
}

// The documentation has the table that the program would print.
func TestDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/tui.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), ui.Table()) {
		t.Errorf("docs/tui.md lacks this table:\n%s", ui.Table())
	}
}
