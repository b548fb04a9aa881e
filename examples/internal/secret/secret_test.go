package secret

import (
	"os"
	"path/filepath"
	"testing"
)

func TestRead(t *testing.T) {
	t.Setenv(Variable, "of the environment")
	if got, err := Read(""); err != nil || string(got) != "of the environment" {
		t.Errorf("%q, %v", got, err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(" of the file \nmore\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(file); err != nil || string(got) != "of the file" {
		t.Errorf("%q, %v", got, err)
	}
	if err := os.WriteFile(file, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, file + " that is not there"} {
		if got, err := Read(name); err == nil {
			t.Errorf("%s: %q", name, got)
		}
	}
}
