package cli

import (
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/topoctl/topoctl/internal/text"
)

// Streams are what a command reads from and writes to: data to Out, everything
// else to Err.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// InTTY and OutTTY say whether a person sits at the other end.
	InTTY, OutTTY, ErrTTY bool
	// Width is the number of columns of the terminal at Out; 0: no limit.
	Width int
	// Height is its number of lines; 0: not known.
	Height int
	Getenv func(string) string
}

// Stdio are the streams of this process.
func Stdio() Streams {
	s := Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv}
	_, _, s.InTTY = terminal(os.Stdin)
	s.Width, s.Height, s.OutTTY = terminal(os.Stdout)
	_, _, s.ErrTTY = terminal(os.Stderr)
	return s
}

// Columns is how wide text for people is: the terminal, else what COLUMNS says, else 100.
func (s Streams) Columns() int {
	if s.Width > 0 {
		return s.Width
	}
	if n, err := strconv.Atoi(s.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	return 100
}

// The values of --color.
const (
	colorAuto   = "auto"
	colorAlways = "always"
	colorNever  = "never"
)

// color decides about colour on Out: the flags win, then NO_COLOR and
// TOPOCTL_NO_COLOR (set to anything at all, as https://no-color.org says), then
// TERM=dumb, then whether Out is a terminal.
func (s Streams) color(choice string, never bool) bool {
	switch {
	case never || choice == colorNever:
		return false
	case choice == colorAlways:
		return true
	case s.Getenv("NO_COLOR") != "" || s.Getenv("TOPOCTL_NO_COLOR") != "":
		return false
	case s.Getenv("TERM") == "dumb":
		return false
	}
	return s.OutTTY
}

// asciiLocale says whether the user's locale has other characters than those of UTF-8, or ASCII
// alone. Without a locale (in many containers) terminals have UTF-8, as systemd's tools take it too.
func (s Streams) asciiLocale() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} { // POSIX: the first that is set
		if v := s.Getenv(name); v != "" {
			v, _, _ = strings.Cut(v, "@")
			if _, codeset, ok := strings.Cut(v, "."); ok {
				v = codeset
			}
			return strings.ReplaceAll(strings.ToLower(v), "-", "") != "utf8"
		}
	}
	return false
}

// ascii writes text for people in ASCII.
type ascii struct {
	io.Writer
	mu   sync.Mutex
	rest []byte // the beginning of a character whose end is not written yet
}

// asciiWriter gives what writes to w in ASCII.
func asciiWriter(w io.Writer) io.Writer { return &ascii{Writer: w} }

func (a *ascii) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	data := slices.Concat(a.rest, p)
	whole := len(data)
	for i := 1; i <= min(utf8.UTFMax-1, len(data)); i++ {
		if utf8.RuneStart(data[len(data)-i]) {
			if !utf8.FullRune(data[len(data)-i:]) {
				whole -= i
			}
			break
		}
	}
	if _, err := io.WriteString(a.Writer, text.InASCII(string(data[:whole]))); err != nil {
		return 0, err
	}
	a.rest = data[whole:]
	return len(p), nil
}

// Screen says why there is none to draw on.
func (s Streams) Screen() error {
	const hint = "use \"topoctl tui --once\" to print one frame, or \"topoctl watch -o jsonl\" to print each change"
	switch {
	case !s.InTTY:
		return withHint(errors.New("standard input is not a terminal"), hint)
	case !s.OutTTY:
		return withHint(errors.New("standard output is not a terminal"), hint)
	case s.Getenv("TERM") == "dumb" || s.Getenv("TERM") == "":
		return withHint(errors.New("the terminal does not support a dashboard (TERM is \"dumb\" or not set)"), hint)
	}
	return nil
}
