// Package hostlist reads lists of hosts with their addresses, and checks single ones.
package hostlist

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/topoctl/topoctl/internal/ssh"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/probe"
)

// What a list of hosts may have.
const (
	maxFile = 1 << 20 // bytes
	maxName = 255     // bytes of a name, and of a DNS name
)

// Parse reads a list of at most most hosts: a line for each, `name address[:port]` or just `address[:port]`, which
// is then its name too. A # begins a comment. IPv6 addresses with a port are in brackets; those without get the given
// one. Errors name the line.
func Parse(data []byte, most int, port string) ([]probe.Host, error) {
	if limit := max(maxFile, 64*most); len(data) > limit {
		return nil, fmt.Errorf("hosts: %d bytes: want at most %d", len(data), limit)
	}
	var out []probe.Host
	names, addresses := map[string]int{}, map[string]int{} // the lines that they are in
	number := 0
	for line := range bytes.Lines(data) {
		number++
		words, _, _ := strings.Cut(string(line), "#")
		fields := strings.Fields(words)
		if len(fields) == 0 {
			continue
		}
		h, err := parseHost(fields, port)
		switch {
		case err != nil:
		case len(out) == most:
			err = fmt.Errorf("more than %d hosts", most)
		case names[h.Name] > 0:
			err = fmt.Errorf("host %q is in line %d already", h.Name, names[h.Name])
		case addresses[h.Address] > 0:
			err = fmt.Errorf("address %s is in line %d already", h.Address, addresses[h.Address])
		}
		if err != nil {
			return nil, &LineError{number, err}
		}
		names[h.Name], addresses[h.Address] = number, number
		out = append(out, h)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("hosts: no host in %s", text.Plural(number, "line"))
	}
	return out, nil
}

// LineError is what is wrong with a line of a list of hosts.
type LineError struct {
	Line int
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("hosts: line %d: %v", e.Line, e.Err) }
func (e *LineError) Unwrap() error { return e.Err }

func parseHost(fields []string, port string) (probe.Host, error) {
	if len(fields) > 2 {
		return probe.Host{}, fmt.Errorf("%d words: want a name and an address, or an address", len(fields))
	}
	h := probe.Host{Name: fields[0]}
	if err := CheckName(h.Name); err != nil {
		return probe.Host{}, err
	}
	var err error
	h.Address, err = WithPort(fields[len(fields)-1], port)
	return h, err
}

// CheckName refuses what cannot be printed as one word.
func CheckName(name string) error {
	switch {
	case name == "" || len(name) > maxName:
		return fmt.Errorf("a name of %d bytes: want 1 to %d", len(name), maxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' }):
		return fmt.Errorf("name %.40q: want a printable word", name)
	}
	return nil
}

// WithPort checks an address and adds the port that it lacks.
func WithPort(text, defaultPort string) (string, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = text, defaultPort
		if inner, ok := strings.CutPrefix(text, "["); ok {
			host = strings.TrimSuffix(inner, "]")
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '+' {
		return "", fmt.Errorf("address %.80q: port %.20q: want 1 to 65535", text, port)
	}
	if a, err := netip.ParseAddr(host); err == nil && !strings.ContainsFunc(a.Zone(), unprintable) {
		return net.JoinHostPort(a.String(), port), nil
	}
	if !ssh.IsName(host) {
		return "", fmt.Errorf("address %.80q: want an IP address or a host name, with or without :port", text)
	}
	return net.JoinHostPort(host, port), nil
}

func unprintable(r rune) bool { return !ssh.IsNameRune(r) }
