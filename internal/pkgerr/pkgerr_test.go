package pkgerr

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestMessage(t *testing.T) {
	inner := Errorf("topo", "line %d: %w", 3, io.EOF)
	for _, tt := range []struct {
		err        error
		text, want string
	}{
		{New("topo", "no host"), "topo: no host", "no host"},
		{inner, "topo: line 3: EOF", "line 3: EOF"},
		{Errorf("discover", "%w", inner), "discover: topo: line 3: EOF", "line 3: EOF"},
		{fmt.Errorf("%w", inner), "topo: line 3: EOF", "line 3: EOF"},
		{fmt.Errorf("a file: %w", inner), "a file: topo: line 3: EOF", "a file: topo: line 3: EOF"},
		{fmt.Errorf("a file: %w", Plain(inner)), "a file: line 3: EOF", "a file: line 3: EOF"},
		{errors.New("topo: of somebody else"), "topo: of somebody else", "topo: of somebody else"},
		{errors.Join(inner, New("discover", "gone")), "topo: line 3: EOF\ndiscover: gone", "line 3: EOF\ngone"},
		{fmt.Errorf("%w and %w", inner, io.EOF), "topo: line 3: EOF and EOF", "line 3: EOF and EOF"},
		{fmt.Errorf("%w, again", inner), "topo: line 3: EOF, again", "line 3: EOF, again"},
	} {
		if got := Message(tt.err); got != tt.want || tt.err.Error() != tt.text {
			t.Errorf("%q gives %q, want %q", tt.err, got, tt.want)
		}
	}
	if err := fmt.Errorf("a file: %w", Plain(inner)); !errors.Is(err, io.EOF) || !errors.Is(err, inner) {
		t.Errorf("%v hides what it wraps", err)
	}
}
