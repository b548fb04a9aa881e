package cli

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every text is that of a command or a topic, and has all lists that it announces. A command without a text keeps
// the program from starting.
func TestHelpTexts(t *testing.T) {
	left := map[string]bool{}
	files, err := helpFiles.ReadDir("help")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		left[f.Name()] = true
	}
	missing := regexp.MustCompile(`(?m)^\{.*\}$`)
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		path := strings.TrimPrefix(c.CommandPath(), "topoctl ")
		delete(left, strings.ReplaceAll(path, " ", "_")+".txt")
		if list := missing.FindString(c.Long); list != "" {
			t.Errorf("the text of %s: there is no list %s", path, list)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	env := &Env{Streams: newStreams().Streams}
	walk(newRoot(env, commands(env)...))
	for name := range left {
		t.Errorf("help/%s is of no command", name)
	}
	defer func() {
		if recover() == nil {
			t.Error("a command without a text starts")
		}
	}()
	setTexts([]*cobra.Command{{Use: "nosuch"}}, nil)
}
