package discover

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// fifo puts a FIFO in a file's place.
func fifo(t *testing.T, name string) {
	t.Helper()
	if err := os.RemoveAll(name); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
}
