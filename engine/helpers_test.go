package engine

import (
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// must ends a test that cannot go on after an error.
func must(t testing.TB, err error) {
	if err != nil {
		t.Helper() // costs more than a small batch
		t.Fatal(err)
	}
}

// ok fails a test that goes on.
func ok(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Error(err)
	}
}

// errOf leaves the error of a call.
func errOf[T any](_ T, err error) error { return err }

func textLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// logged is a log that can be read while it is written.
type logged struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func kindOf(read bool) OpKind {
	if read {
		return Read
	}
	return Write
}
