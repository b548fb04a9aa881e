package ui

import "strings"

// shown are keys that are written otherwise than bubbletea names them.
var shown = map[string]string{
	"up": "↑", "down": "↓", "left": "←", "right": "→", "pgup": "page up", "pgdown": "page down",
}

// Label is how a binding's keys are written: "q, ctrl+c", with ascii "up, k" for "↑, k".
func (b Binding) Label(ascii bool) string {
	names := make([]string, len(b.Keys))
	for i, k := range b.Keys {
		names[i] = k
		if name := shown[k]; name != "" && (!ascii || strings.HasPrefix(k, "pg")) {
			names[i] = name
		}
	}
	return strings.Join(names, ", ")
}

// Short is how a binding stands in the footer: its first key.
func (b Binding) Short(ascii bool) string {
	return Binding{Keys: b.Keys[:min(1, len(b.Keys))]}.Label(ascii)
}

// Table is all bindings as a Markdown table, for the documentation.
func Table() string {
	var out strings.Builder
	out.WriteString("| keys | action |\n|---|---|\n")
	for _, g := range Groups() {
		out.WriteString("| **" + string(g) + "** | |\n")
		for _, b := range bindings {
			if b.Group == g {
				out.WriteString("| `" + strings.ReplaceAll(b.Label(true), ", ", "` `") + "` | " + b.Help + " |\n")
			}
		}
	}
	return out.String()
}
