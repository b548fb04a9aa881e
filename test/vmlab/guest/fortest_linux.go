package guest

import (
	"context"
	"testing"
	"time"
)

// ForTest opens the lab for a test, and closes it after. The context ends with the test, or
// when what it does must have happened.
func ForTest(t testing.TB, within time.Duration) (*Lab, context.Context) {
	t.Helper()
	l, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), within)
	t.Cleanup(cancel)
	return l, ctx
}
