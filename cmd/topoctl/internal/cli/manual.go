package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manualPages are the pages of a command and of those below it in section 1 of the manual, by file name.
func manualPages(cmd *cobra.Command, version string, date time.Time) map[string][]byte {
	pages := map[string][]byte{pageName(cmd) + ".1": manualPage(cmd, version, date)}
	for _, c := range subcommands(cmd) {
		maps.Copy(pages, manualPages(c, version, date))
	}
	return pages
}

// subcommands are those that have a page.
func subcommands(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool {
		return !c.IsAvailableCommand() || c.Name() == "help"
	})
}

// pageName is what the page of a command is called, such as topoctl-kv-predict.
func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manualPage is what help says of a command, in roff's man macros. The program's own page has the help
// topics as sections.
func manualPage(cmd *cobra.Command, version string, date time.Time) []byte {
	var p page
	fmt.Fprintf(&p, ".TH %s 1 %s \"topoctl %s\" \"User Commands\"\n", strings.ToUpper(pageName(cmd)), date.UTC().Format(time.DateOnly), version)
	p.macro("SH", "NAME")
	p.text(pageName(cmd) + " - " + cmd.Short)
	p.macro("SH", "SYNOPSIS")
	line := cmd.UseLine()
	if cmd.HasAvailableSubCommands() {
		line = cmd.CommandPath() + " COMMAND [flags]"
	}
	p.macro("B", line)
	if cmd.Long != "" {
		p.macro("SH", "DESCRIPTION")
		p.text(cmd.Long)
	}
	commands := subcommands(cmd)
	if len(commands) > 0 {
		p.macro("SH", "COMMANDS")
	}
	for _, c := range commands {
		p.item(c.CommandPath(), c.Short+".")
	}
	for _, g := range allFlags(cmd) {
		p.macro("SH", strings.ToUpper(g.Name()))
		g.VisitAll(func(fl *pflag.Flag) { p.flag(fl) })
	}
	for _, c := range cmd.Commands() {
		if c.IsAdditionalHelpTopicCommand() {
			p.macro("SH", strings.ToUpper(strings.ReplaceAll(c.Name(), "-", " ")))
			p.text(c.Long)
		}
	}
	if cmd.Example != "" {
		p.macro("SH", "EXAMPLES")
		p.text(cmd.Example)
	}
	var pages []string
	if cmd.HasParent() {
		commands = append(commands, cmd.Parent())
	}
	for _, c := range commands {
		pages = append(pages, pageName(c)+"(1)")
	}
	if len(pages) > 0 {
		p.macro("SH", "SEE ALSO")
		p.text(strings.Join(pages, ", "))
	}
	return []byte(p.String())
}

// page is text in roff's man macros.
type page struct{ strings.Builder }

var roff = strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`, "`", `\(ga`, "'", `\(aq`, "^", `\(ha`, "~", `\(ti`)

func (p *page) macro(name string, args ...string) {
	p.WriteString("." + name)
	for _, a := range args {
		p.WriteString(` "` + roff.Replace(a) + `"`)
	}
	p.WriteString("\n")
}

// text writes prose, which is filled, and lines that are set in, which are kept.
func (p *page) text(s string) {
	kept := false
	for line := range strings.SplitSeq(strings.TrimRight(strings.ReplaceAll(s, "\t", "  "), "\n"), "\n") {
		if in := strings.HasPrefix(line, " "); line != "" && in != kept {
			p.macro(map[bool]string{true: "EX", false: "EE"}[in])
			kept = in
		}
		switch {
		case line != "":
			p.WriteString(`\&` + roff.Replace(line) + "\n") // \&: a period at the start is no macro
		case kept:
			p.WriteString("\n")
		default:
			p.macro("PP")
		}
	}
	if kept {
		p.macro("EE")
	}
}

func (p *page) item(name, about string) {
	p.macro("TP")
	p.macro("B", name)
	p.text(about)
}

// flag writes a flag as help does: name and value, then what it is for and its default.
func (p *page) flag(fl *pflag.Flag) {
	alone := pflag.NewFlagSet("", pflag.ContinueOnError)
	alone.AddFlag(fl)
	name, about, _ := strings.Cut(strings.TrimSpace(alone.FlagUsages()), "  ")
	if name != "" {
		p.item(name, strings.TrimSpace(about))
	}
}
