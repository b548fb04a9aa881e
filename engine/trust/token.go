package trust

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// MinSecret is how many bytes a token's secret must have; engines refuse less.
const MinSecret = 16

// Bounds of a token file: it has secrets, not a disk image.
const (
	maxTokens = 64
	maxLine   = 4 << 10
)

// ShortError is the length of a secret that is too short.
type ShortError int

func (n ShortError) Error() string {
	return fmt.Sprintf("the token has %d bytes, want %d or more", int(n), MinSecret)
}

// ReadToken reads a token from the first line and not a byte further: what follows on
// standard input is somebody else's.
func ReadToken(in io.Reader) (Token, error) {
	line, err := firstLine(in)
	if err != nil {
		return Token{}, err
	}
	return parseToken(line)
}

// parseTokens reads a token file: a token in each line, but for empty ones and those that begin
// with #.
func parseTokens(data []byte) ([]Token, error) {
	var out []Token
	number := 0
	for line := range bytes.Lines(data) {
		number++
		line := strings.TrimSpace(string(line))
		if line == "" || line[0] == '#' {
			continue
		}
		t, err := parseToken(line)
		switch {
		case err != nil && (number > 1 || bytes.Count(data, []byte{'\n'}) > 1):
			return nil, fmt.Errorf("line %d: %w", number, err)
		case err != nil:
			return nil, err
		case len(out) == maxTokens:
			return nil, fmt.Errorf("line %d: more than %d tokens", number, maxTokens)
		}
		out = append(out, t)
	}
	if out == nil {
		return nil, ShortError(0)
	}
	return out, nil
}

// parseToken reads SECRET, or NAME SECRET. Errors do not show what they read.
func parseToken(line string) (Token, error) {
	if len(line) > maxLine {
		return Token{}, fmt.Errorf("the line is longer than %d bytes", maxLine)
	}
	words := strings.Fields(line)
	var t Token
	switch len(words) {
	case 0:
	case 1:
		t.Secret = []byte(words[0])
	case 2:
		t.Name, t.Secret = words[0], []byte(words[1])
	default:
		return Token{}, fmt.Errorf("%d words: want a secret, or a name and a secret; a secret has no blanks", len(words))
	}
	if len(t.Secret) < MinSecret {
		return Token{}, ShortError(len(t.Secret))
	}
	if len(words) == 2 && !tokenName.MatchString(t.Name) {
		return Token{}, errTokenName
	}
	return t, nil
}

var (
	tokenName    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	errTokenName = errors.New("the token's name: want up to 64 letters, digits and . _ -, a letter or digit first")
)

func firstLine(in io.Reader) (string, error) {
	var out []byte
	for {
		var b [1]byte // no more than the line is read
		_, err := io.ReadFull(in, b[:])
		switch {
		case errors.Is(err, io.EOF) || b[0] == '\n' && err == nil:
			return strings.TrimSpace(string(out)), nil
		case err != nil:
			return "", err
		case len(out) > maxLine:
			return "", fmt.Errorf("the line is longer than %d bytes", maxLine)
		}
		out = append(out, b[0])
	}
}
