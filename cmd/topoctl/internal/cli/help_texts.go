package cli

import (
	"embed"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/text"
)

// helpFiles are what help says of each command and topic, in the file of its path: fleet_check.txt. What stands
// below "Examples:" are its examples. A line in braces stands for a list that the program has (setTexts).
//
//go:embed help/*.txt
var helpFiles embed.FS

// readHelp reads the text of a command or topic, and its examples. A command without a text is a mistake in
// this program, which must not start.
func readHelp(path string) (about, examples string) {
	data, err := helpFiles.ReadFile("help/" + strings.ReplaceAll(path, " ", "_") + ".txt")
	if err != nil {
		panic(err)
	}
	about, examples, _ = strings.Cut(strings.TrimSuffix(string(data), "\n"), "\n\nExamples:\n")
	return about, examples
}

// setTexts gives commands, and those below them, their texts. all are those that the text on formats lists.
func setTexts(commands, all []*cobra.Command) {
	lists := strings.NewReplacer(
		"{formats of export}", hostFormats().help(),
		"{formats of fleet export}", fleetFormats().help(),
		"{formats by command}", formatsText(all),
		"{documents}", documentsText(),
	)
	for len(commands) > 0 {
		c := commands[0]
		c.Long, c.Example = readHelp(c.CommandPath())
		c.Long = lists.Replace(c.Long)
		commands = append(commands[1:], c.Commands()...)
	}
}

// helpTopics are the pages of "topoctl help TOPIC" about some commands.
func helpTopics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "exit-codes", Short: "What the exit codes mean"},
		{Use: "environment", Short: "Environment variables that topoctl reads"},
		{Use: "output", Short: "Which command prints which formats"},
		{Use: "json", Short: "What programs can rely on in the JSON"},
	}
}

// formatsText has a row for each command with the formats that it prints, and one for each format.
func formatsText(commands []*cobra.Command) string {
	var rows, formats [][]string
	for _, c := range runnable(commands) {
		what := strings.Join(FormatsOf(c), " ")
		if what == "" {
			what = PrintsOf(c) + " (no -o)"
		}
		rows = append(rows, []string{"  " + c.CommandPath(), what})
	}
	for _, f := range formatsKnown {
		formats = append(formats, []string{"  " + f.Name, f.About})
	}
	return strings.Join(slices.Concat(text.Columns(rows), []string{""}, text.Columns(formats)), "\n")
}

// runnable are the commands that do something, of families their subcommands. No root is above them:
// their path has no "topoctl".
func runnable(commands []*cobra.Command) []*cobra.Command {
	var out []*cobra.Command
	for _, c := range commands {
		switch {
		case c.HasSubCommands():
			out = append(out, runnable(c.Commands())...)
		case c.Runnable() && !c.Hidden:
			out = append(out, c)
		}
	}
	return out
}
