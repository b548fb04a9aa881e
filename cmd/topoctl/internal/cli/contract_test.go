package cli

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/text"
)

// A command that prints a result has a table, which it prints where no format is given, and JSON; one
// that prints something else says what. "topoctl help output" has all of them.
func TestOutputContract(t *testing.T) {
	env := &Env{Streams: newStreams().Streams, Now: time.Now}
	all := commands(env)
	topic := "\n" + formatsText(all)
	for _, c := range runnable(all) {
		name, formats := c.CommandPath(), FormatsOf(c)
		if !strings.Contains(topic, "\n  "+name+" ") {
			t.Errorf("help output has no row for %s", name)
		}
		switch {
		case len(formats) == 0 && PrintsOf(c) == "":
			t.Errorf("%s has neither -o nor a word on what it prints", name)
		case len(formats) == 0:
		case !slices.Contains(formats, formatJSON) || !slices.Contains(formats, formatTable):
			t.Errorf("%s prints %v: want table and json", name, formats)
		case formats[0] != formatTable && name != "discover": // whose document other commands read
			t.Errorf("%s prints %s by default", name, formats[0])
		}
		for _, f := range formats {
			if !slices.ContainsFunc(formatsKnown, func(known struct{ Name, About string }) bool { return known.Name == f }) {
				t.Errorf("%s prints %s, which is no known format", name, f)
			}
		}
	}
}

// changing are the commands of which no two runs print the same: they measure, or tell the time.
var changing = []string{"agent", "bench", "kv replay", "peers", "watch"}

// silent are the commands that say nothing beside their result: --quiet is refused.
var silent = []string{"cert show", "fixtures", "kv preset", "version"}

// What a command prints for people is the same in a pipe as on a terminal that is wide enough, but
// for the colours. In a locale of ASCII alone it is ASCII.
func TestTablesInPipes(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: every command three times")
	}
	f := newStreams()
	nastyFiles(t, f)
	env := &Env{Streams: f.Streams, Now: time.Now}
	run := func(args []string, tty bool, locale string) string {
		f.OutTTY, f.ErrTTY = tty, tty
		f.Environ["LANG"], f.Environ["TERM"] = locale, "xterm"
		runFake(t.Context(), f, args...)
		if out := f.Stdout.String() + f.Stderr.String(); locale == "C" {
			if i := strings.IndexFunc(out, func(r rune) bool { return r >= utf8.RuneSelf }); i >= 0 {
				t.Errorf("%q in LANG=C: not ASCII: %.80q", args, out[i:])
			}
		}
		return f.Stdout.String()
	}
	for _, name := range jsonCommands(commands(env)) {
		if slices.Contains(changing, name) {
			continue
		}
		for _, r := range jsonRuns[name] {
			args := append(strings.Fields(name), strings.Fields(r.args)...)
			args = append(args, "-o", formatTable)
			pipe := run(args, false, "")
			if strings.TrimSpace(pipe) == "" {
				t.Errorf("%q prints nothing", args)
			}
			if terminal := run(append(args, "--color", "never"), true, "en_US.UTF-8"); terminal != pipe {
				t.Errorf("%q prints another text in a pipe:\n%s\nterminal:\n%s", args, pipe, terminal)
			}
			run(args, false, "C")
		}
	}
}

// With --quiet stderr has errors alone, and result and exit code stay as they are.
func TestQuiet(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: every command twice")
	}
	f := newStreams()
	nastyFiles(t, f)
	for _, name := range jsonCommands(commands(&Env{Streams: f.Streams, Now: time.Now})) {
		if slices.Contains(changing, name) || slices.Contains(silent, name) {
			continue
		}
		for _, r := range jsonRuns[name] {
			args := append(strings.Fields(name), strings.Fields(r.args)...)
			code := runFake(t.Context(), f, args...)
			out := f.Stdout.String()
			if quiet := runFake(t.Context(), f, append(args, "--quiet")...); quiet != code || f.Stdout.String() != out || f.Stderr.Len() > 0 && code != exitFailed {
				t.Errorf("%q --quiet: exit code %d, without it %d; the same result: %v; stderr: %s", args, quiet, code, f.Stdout.String() == out, f.Stderr.String())
			}
		}
	}
}

// Help has room on a screen: all lines in its columns, the root and brief help in not many lines.
func TestHelpFitsTheScreen(t *testing.T) {
	const rootLines, briefLines = 34, 45
	f := newStreams()
	help := func(args ...string) []string {
		if code := runFake(t.Context(), f, args...); code != 0 || f.Stderr.Len() > 0 {
			t.Fatalf("%q: code %d: %s", args, code, f.Stderr.String())
		}
		return strings.Split(strings.TrimSuffix(f.Stdout.String(), "\n"), "\n")
	}
	check := func(columns, most int, args ...string) {
		f.Width, f.OutTTY = columns, columns > 0
		f.Environ["LANG"] = "C"
		lines := help(args...)
		if columns == 0 {
			columns = 80
		}
		if most > 0 && len(lines) > most {
			t.Errorf("%q has %d lines, want %d at most", args, len(lines), most)
		}
		for _, line := range lines {
			if text.Width(line) > columns {
				t.Errorf("%q at %d columns: %q", args, columns, line)
			}
			if strings.ContainsFunc(line, func(r rune) bool { return r >= utf8.RuneSelf }) {
				t.Errorf("%q in LANG=C: %q", args, line)
			}
		}
	}
	check(0, rootLines, "--help")
	check(60, 0, "--help")
	env := &Env{Streams: f.Streams, Now: time.Now}
	for _, c := range commands(env) {
		if c.IsAdditionalHelpTopicCommand() {
			check(0, 0, "help", c.Name())
		}
		if c.GroupID == "" && c.Name() != "version" && c.Name() != "schema" && !c.Hidden && !c.IsAdditionalHelpTopicCommand() {
			t.Errorf("%s has no group in the help", c.Name())
		}
	}
	for _, c := range runnable(commands(env)) {
		path := strings.Fields(c.CommandPath())
		check(0, briefLines, append(path, "--help")...)
		check(60, 0, append(path, "--help")...)
		check(0, 0, append(path, "--help-all")...)
	}
}

// Values are completed by words, by names, or as files where they are files: ":0" is what tells the
// shell to offer files, ":4" what keeps it from that.
func TestValuesAreCompleted(t *testing.T) {
	f := newStreams()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"path", "--fixture", "dgx-h100", "mlx"}, "mlx5_0\t"},
		{[]string{"path", "gpu:0", "--fixture", "dgx-h100", "mlx5_1"}, "mlx5_11\t"},
		{[]string{"path", "gpu:0", "--peer", "fixture:"}, "fixture:dgx-h100\t"},
		{[]string{"kv", "predict", "--host", "p=fixture:"}, "p=fixture:dgx-h100\t"},
		{[]string{"watch", "--baseline", "fixture:"}, "fixture:dgx-h100\t"},
		{[]string{"tui", "--baseline", "fixture:"}, "fixture:dgx-h100\t"},
		{[]string{"--fixture", ""}, "dgx-h100\t"},
		{[]string{"help", ""}, "doctor\tCheck"},
		{[]string{"help", "kv", ""}, "predict\t"},
		{[]string{"doctor", "-o", ""}, "nagios\ta monitoring"},
		{[]string{"-o", ""}, "json\tone document"},
		{[]string{"export", "env", "--for", ""}, "vllm"},
		{[]string{"python", "env", "--for", ""}, "sglang\t"},
		{[]string{"path", "--engine", ""}, "nccl"},
		{[]string{"kv", "preset", ""}, "a10-qwen2.5-7b-1nic"},
		{[]string{"bench", "--threads", ""}, ":4"},
		{[]string{"kv", "predict", "--rate", ""}, ":4"},
		{[]string{"path", "gpu:0", "--fixture", "dgx-h100", "--role", "mlx"}, "mlx5_0=\t"},
		{[]string{"path", "gpu:0", "--role", "mlx5_0="}, "mlx5_0=storage"},
		{[]string{"path", "gpu:0", "--fixture", "dgx-h100", "--down", "mlx5_0,"}, "mlx5_0,mlx5_1"},
		{[]string{"agent", "--token-file", ""}, ":0"},
		{[]string{"probe", "local", "--report", ""}, ":0"},
		{[]string{"doctor", "--fr"}, "--from\tread a saved host from FILE, -"},
		{[]string{"export", "svg", "--th"}, "--theme\t"},
		{[]string{"export", "--th"}, "--theme\t"},
		{[]string{"export", "env", "--th"}, ":4"}, // it has no effect there
		{[]string{"export", "mooncake", "--uni"}, ":4"},
		{[]string{"export", "svg", "--outp"}, ":4"}, // it has no -o
	} {
		runFake(t.Context(), f, append([]string{cobra.ShellCompRequestCmd}, tt.args...)...)
		if !strings.Contains("\n"+f.Stdout.String(), "\n"+tt.want) {
			t.Errorf("%q: no %q:\n%.400s", tt.args, tt.want, f.Stdout.String())
		}
	}
}
