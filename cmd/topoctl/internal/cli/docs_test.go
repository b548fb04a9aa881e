package cli

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/testkit/golden"
)

// pages are the lines of the Markdown files that people read, by their path in the repository.
func pages(t *testing.T) (root string, lines map[string][]string) {
	t.Helper()
	root, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	lines = map[string][]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*.md", "examples/*/*.md", "python/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			lines[strings.TrimPrefix(file, root+"/")] = strings.SplitAfter(string(data), "\n")
		}
	}
	return root, lines
}

// fences says for each line what it is: "" is text, and a line of a fenced block has the word that
// follows the opening fence, or "code". What stands below a command that begins with "$ " is "output",
// and the fences themselves are "fence".
func fences(lines []string) []string {
	out := make([]string, len(lines))
	inside, ran := "", false
	for i, line := range lines {
		word, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && inside != "":
			out[i], inside = "fence", ""
		case fence:
			out[i], inside, ran = "fence", cmp.Or(word, "code"), false
		case inside != "" && strings.HasPrefix(line, "$ "):
			out[i], ran = inside, true
		case ran && inside != "" && !strings.HasSuffix(lines[i-1], "\\\n"):
			out[i] = "output"
		default:
			out[i] = inside
		}
	}
	return out
}

// example is a command that a page shows, and what the page shows below it.
type example struct {
	line, output, end int // where they begin and end in the page's lines
	typed, want       string
}

// examples are the commands that begin with "$ topoctl" in the blocks of a page.
func examples(lines []string) []example {
	var out []example
	kinds := fences(lines)
	for i, line := range lines {
		if kinds[i] != "code" || !strings.HasPrefix(line, "$ topoctl ") && line != "$ topoctl\n" {
			continue
		}
		x := example{line: i, output: i + 1}
		for strings.HasSuffix(lines[x.output-1], "\\\n") {
			x.output++
		}
		for x.end = x.output; kinds[x.end] == "output"; x.end++ {
		}
		x.typed = strings.TrimPrefix(strings.Join(lines[i:x.output], ""), "$ ")
		x.want = strings.Join(lines[x.output:x.end], "")
		out = append(out, x)
	}
	return out
}

// as gives what a command printed the form that the page has: cut off where the page has "..." in its
// last line, and with the empty line that stands before the next command.
func (x example) as(printed string) string {
	printed = strings.TrimRight(printed, "\n")
	if cut, ok := strings.CutSuffix(x.want, "...\n"); ok {
		some := strings.SplitAfter(printed+"\n", "\n")
		printed = strings.Join(some[:min(strings.Count(cut, "\n"), len(some))], "") + "..."
	}
	end := len(x.want) - len(strings.TrimRight(x.want, "\n"))
	if printed != "" {
		end = max(end, 1)
	}
	return printed + strings.Repeat("\n", end)
}

// What a page shows below a line that begins with "$ topoctl" is what the program prints there. A page
// is one session, in a folder that has the files of a clone. "..." in the last line stands for what is
// left out. Blocks that begin with ```text were seen on some machine, and are not run. With -update
// the pages get what the program prints now.
func TestDocsShowRealOutput(t *testing.T) {
	root, all := pages(t)
	ran := 0
	for _, path := range slices.Sorted(maps.Keys(all)) {
		shown := examples(all[path])
		if len(shown) == 0 {
			continue
		}
		ran += len(shown)
		t.Run(path, func(t *testing.T) {
			t.Chdir(clone(t, root))
			var page []string
			before := 0
			for _, x := range shown {
				got := x.as(onTerminal(t, x.typed))
				if diff := gocmp.Diff(x.want, got); diff != "" && !golden.Updating() {
					t.Errorf("%s:%d: $ %s (-page +program; go test with -update rewrites the page)\n%s", path, x.line+1, x.typed, diff)
				}
				page = append(append(page, all[path][before:x.output]...), got)
				before = x.end
			}
			if page = append(page, all[path][before:]...); golden.Updating() {
				golden.Check(t, filepath.Join(root, path), strings.Join(page, ""))
			}
		})
	}
	if ran < 5 {
		t.Errorf("%d commands were run", ran)
	}
}

// clone is a folder with everything that is in the repository, in which commands may write files.
func clone(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.Symlink(filepath.Join(root, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// onTerminal is what a person sees who types a command: "topoctl ARGS", with "> FILE", "| grep WORD",
// "| head -N" or "| tail -N" behind it.
func onTerminal(t *testing.T, typed string) string {
	t.Helper()
	typed = strings.ReplaceAll(typed, "\\\n", " ")
	words := shellWord.FindAllString(typed, -1)
	for i := range words {
		words[i] = strings.Trim(words[i], `'"`)
	}
	args, rest := words[1:], []string(nil)
	if i := slices.IndexFunc(args, func(w string) bool { return w == "|" || w == ">" }); i >= 0 {
		args, rest = args[:i], args[i:]
	}
	var screen, piped bytes.Buffer
	out := &screen
	if rest != nil {
		out = &piped
	}
	env := &Env{
		Streams: Streams{In: strings.NewReader(""), Out: out, Err: &screen, Getenv: func(string) string { return "" }},
		Now:     func() time.Time { return time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC) },
	}
	if code := Run(t.Context(), env, args, commands(env)...); code == exitFailed {
		t.Errorf("$ %s: exit code %d:\n%s", typed, code, screen.String())
	}
	switch {
	case rest == nil:
	case rest[0] == ">" && len(rest) == 2:
		if err := os.WriteFile(rest[1], piped.Bytes(), 0o600); err != nil {
			t.Error(err)
		}
	case len(rest) == 3 && rest[1] == "grep":
		for line := range strings.Lines(piped.String()) {
			if strings.Contains(line, rest[2]) {
				screen.WriteString(line)
			}
		}
	case len(rest) == 3 && (rest[1] == "head" || rest[1] == "tail"):
		n, err := strconv.Atoi(strings.TrimPrefix(rest[2], "-"))
		if err != nil {
			t.Errorf("$ %s: %v", typed, err)
		}
		lines := slices.Collect(strings.Lines(piped.String()))
		if n = min(n, len(lines)); rest[1] == "head" {
			lines = lines[:n]
		} else {
			lines = lines[len(lines)-n:]
		}
		screen.WriteString(strings.Join(lines, ""))
	default:
		t.Errorf("$ %s: this test cannot do what follows the command", typed)
	}
	return screen.String()
}

var (
	shellWord = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)
	// invocation is the program's name where a command begins, and the words of that command.
	invocation = regexp.MustCompile(`(?m)(?:^|^\$ |[|;&(] *|sudo |exec |-- |^podman run .* |^[A-Z_]+=\S+ )topoctl((?:[ \t]+(?:'[^'\n]*'|"[^"\n]*"|[^\s|;&<>()'"` + "`" + `#]+))*)`)
	inline     = regexp.MustCompile("`topoctl((?: [^`]*)?)`")
	indented   = regexp.MustCompile(`^ {4,}\S.*\n`)
)

// stands are values for the words in capitals that pages use where a user has to fill something in.
var stands = map[string]string{"N": "1", "SIZE": "1MiB", "DURATION": "1s", "RATE": "1Gb/s"}

var listing = regexp.MustCompile("(?m)\\]\\(\\.\\./(examples/\\S+)\\):\n\n```\\w+\n((?s:.*?)\n)```\n")

// A block below a line that ends with a link to a program in examples shows that program.
func TestDocsShowPrograms(t *testing.T) {
	root, all := pages(t)
	shown := 0
	for path, lines := range all {
		text := strings.Join(lines, "")
		programs := listing.FindAllStringSubmatch(text, -1)
		for _, m := range programs {
			program, err := os.ReadFile(filepath.Join(root, m[1]))
			if err != nil {
				t.Fatal(err)
			}
			text = strings.Replace(text, m[2], string(program), 1)
		}
		if shown += len(programs); len(programs) > 0 {
			golden.Check(t, filepath.Join(root, path), text)
		}
	}
	if shown < 3 {
		t.Errorf("pages show %d programs", shown)
	}
}

// Pictures that are named after a fixture are what the program draws of it.
func TestDocsPictures(t *testing.T) {
	found, err := filepath.Glob("../../../../docs/images/*.svg")
	if err != nil {
		t.Fatal(err)
	}
	drawn := 0
	for _, file := range found {
		if name := strings.TrimSuffix(filepath.Base(file), ".svg"); slices.Contains(fixtures.Names(), name) {
			golden.Check(t, file, onTerminal(t, "topoctl export svg --fixture "+name))
			drawn++
		}
	}
	if drawn < 2 {
		t.Errorf("%d pictures of fixtures", drawn)
	}
}

// Every command in a page's code exists, with its flags, and takes these arguments. Of one that is only
// mentioned, in a sentence, the command and its flags exist.
func TestDocsUseCommandsThatExist(t *testing.T) {
	_, all := pages(t)
	root, checked := idle(), 0
	for path, lines := range all {
		var text, code strings.Builder
		for i, kind := range fences(lines) {
			switch {
			case kind == "fence", kind == "output":
			case kind == "":
				text.WriteString(lines[i])
				code.WriteString(strings.TrimLeft(indented.FindString(lines[i]), " "))
			default:
				code.WriteString(lines[i])
			}
		}
		for _, m := range invocation.FindAllStringSubmatch(strings.ReplaceAll(code.String(), "\\\n", " "), -1) {
			checked++
			if err := parses(m[1]); err != nil {
				t.Errorf("%s: topoctl%s: %v", path, m[1], err)
			}
		}
		for _, m := range inline.FindAllStringSubmatch(text.String(), -1) {
			checked++
			if err := mentions(root, m[1]); err != nil {
				t.Errorf("%s: %s: %v", path, m[0], err)
			}
		}
	}
	if checked < 100 {
		t.Errorf("%d commands in all pages", checked)
	}
}

// idle is the program without what its commands do.
func idle() *cobra.Command {
	env := &Env{Streams: newStreams().Streams, Now: time.Now}
	root := newRoot(env, commands(env)...)
	var stop func(c *cobra.Command)
	stop = func(c *cobra.Command) {
		if c.RunE != nil {
			c.RunE = func(*cobra.Command, []string) error { return nil }
		}
		for _, sub := range c.Commands() {
			stop(sub)
		}
	}
	stop(root)
	return root
}

// split gives the words of a command, with values in place of the words in capitals.
func split(args string) []string {
	words := shellWord.FindAllString(strings.ReplaceAll(args, "...", ""), -1)
	for i, word := range words {
		words[i] = strings.Trim(word, `'"`)
		if value, ok := stands[word]; ok {
			words[i] = value
		}
	}
	return words
}

// parses goes as far with a command as its own work.
func parses(args string) error {
	root := idle()
	root.SetArgs(append([]string{}, split(args)...)) // nil would mean os.Args
	return root.Execute()
}

// mentions looks for a command and its flags.
func mentions(root *cobra.Command, args string) error {
	words := split(args)
	if len(words) > 0 && words[0] == "help" {
		words = words[1:]
	}
	cmd, rest, err := root.Find(words)
	if err != nil {
		return err
	}
	if cmd.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return unknownCommand(cmd, rest)
	}
	for _, m := range adviceFlag.FindAllStringSubmatch(strings.Join(rest, " "), -1) {
		if cmd.Flag(m[1]) == nil {
			return fmt.Errorf("%s has no --%s", cmd.CommandPath(), m[1])
		}
	}
	return nil
}

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	codeSpan = regexp.MustCompile("`[^`]*`")
	inSlug   = regexp.MustCompile(`[^\pL\pN _-]`)
)

// Links between pages lead somewhere, to a heading where they name one, and docs/README.md to every page.
func TestDocsLinks(t *testing.T) {
	root, all := pages(t)
	anchors := map[string]map[string]bool{}
	for path, lines := range all {
		anchors[path] = map[string]bool{}
		for i, kind := range fences(lines) {
			if title := strings.TrimLeft(lines[i], "#"); kind == "" && title != lines[i] {
				slug := strings.ReplaceAll(inSlug.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), ""), " ", "-")
				for n, plain := 1, slug; anchors[path][slug]; n++ {
					slug = plain + "-" + strconv.Itoa(n)
				}
				anchors[path][slug] = true
			}
		}
	}
	linked := map[string]bool{}
	for path, lines := range all {
		for i, kind := range fences(lines) {
			if kind != "" {
				continue
			}
			for _, m := range link.FindAllStringSubmatch(codeSpan.ReplaceAllString(lines[i], ""), -1) {
				if strings.Contains(m[1], ":") {
					continue // of another site
				}
				file, anchor, _ := strings.Cut(m[1], "#")
				if file = filepath.Join(filepath.Dir(path), file); strings.HasPrefix(m[1], "#") {
					file = path
				}
				if path == "docs/README.md" {
					linked[file] = true
				}
				if _, err := os.Stat(filepath.Join(root, file)); err != nil {
					t.Errorf("%s:%d: %v", path, i+1, err)
				} else if anchor != "" && !anchors[file][anchor] {
					t.Errorf("%s:%d: %s has no heading #%s", path, i+1, file, anchor)
				}
			}
		}
	}
	for path := range all {
		if filepath.Dir(path) == "docs" && path != "docs/README.md" && !linked[path] {
			t.Errorf("docs/README.md does not lead to %s", path)
		}
	}
}
