// Package ssh runs commands on other hosts through the system's ssh.
package ssh

import (
	"cmp"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/topoctl/topoctl/internal/text"
)

// Program is the system's ssh.
type Program struct {
	// Words are the program, and options of it; default ssh.
	Words []string
	// ConnectTime is how long it may take to connect; default 10 s.
	ConnectTime time.Duration
}

// Command is the process that runs a command on a host, each word quoted for the shell there. It
// asks for no password. The terminal's interrupt does not reach it: its owner ends it.
func (p Program) Command(host string, words []string) *exec.Cmd {
	program := p.Words
	if len(program) == 0 {
		program = []string{"ssh"}
	}
	cmd := exec.Command(program[0], append(slices.Clone(program[1:]), p.Arguments(host, words)...)...)
	ownProcessGroup(cmd)
	return cmd
}

// Arguments are what the program is given.
func (p Program) Arguments(host string, words []string) []string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quote(w)
	}
	seconds := max(1, int(cmp.Or(p.ConnectTime, 10*time.Second)/time.Second))
	return []string{"-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=" + strconv.Itoa(seconds), "--", host, strings.Join(quoted, " ")}
}

// quote makes one word of a POSIX shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// CheckHost refuses what is no host and what ssh would take for something else.
func CheckHost(host string) error {
	if _, err := netip.ParseAddr(host); err != nil && !IsName(host) {
		return fmt.Errorf("host %.80q: want an IP address or a host name", host)
	}
	return nil
}

const maxHostName = 255 // bytes of a DNS name

// IsName says whether a text can be looked up: letters, digits, '-', '_' and '.', but no leading '-',
// which programs would take for an option.
func IsName(s string) bool {
	return s != "" && len(s) <= maxHostName && s[0] != '-' && s[0] != '.' && !strings.ContainsFunc(s, func(r rune) bool { return !IsNameRune(r) })
}

// IsNameRune says whether a DNS name has a character.
func IsNameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.'
}

// Tail keeps the end of what is written to it: what ssh and the command said last.
type Tail struct {
	mu   sync.Mutex
	data []byte
}

const tailBytes = 2 << 10

func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	if n := len(t.data) - tailBytes; n > 0 {
		t.data = append(t.data[:0], t.data[n:]...)
	}
	return len(p), nil
}

// tailLines is how many lines a Suffix has at most: before them are banners, and the warnings of shells.
const tailLines = 3

// Suffix is what was said last, as a line, for the end of an error: ": Permission denied", "" for nothing.
func (t *Tail) Suffix() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for line := range strings.Lines(string(t.data)) {
		if words := strings.Fields(line); len(words) > 0 {
			lines = append(lines, strings.Join(words, " "))
		}
	}
	said := text.Printable(strings.Join(lines[max(0, len(lines)-tailLines):], "; "))
	if said == "" {
		return ""
	}
	return ": " + said
}
