package hosttree

import (
	"bytes"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRewrite(t *testing.T) {
	m := NewMem()
	m.Comment = "kept"
	must(t, m.AddFile("sys/old/file", []byte("old\n")))
	must(t, m.AddSymlink("sys/link", "old/file"))
	must(t, m.AddUnreadable("sys/refused", errors.New("old trouble")))
	must(t, m.AddUnreadable("sys/denied", fs.ErrPermission))
	must(t, m.AddUnreadableDir("sys/closed", fs.ErrPermission))
	must(t, m.AddFile("sys/closed/old", []byte("x")))
	must(t, m.AddFile("etc/secret/id", []byte("x")))
	before := dump(t, m)
	c, err := m.Rewrite(
		func(_ string, data []byte) []byte { return bytes.ReplaceAll(data, []byte("old"), []byte("new")) },
		func(name string) bool { return name == "etc/secret" },
	)
	must(t, err)
	want := map[string]string{
		"etc": "directory", "sys": "directory", "sys/closed": "directory", "sys/closed/": "permission denied",
		"sys/new": "directory", "sys/new/file": `"new\n" <nil>`, "sys/link": `-> "new/file" <nil>`,
		"sys/refused": `"" new trouble`, "sys/denied": `"" permission denied`, "sys/closed/new": `"x" <nil>`,
	}
	if diff := cmp.Diff(want, dump(t, c)); diff != "" {
		t.Error(diff)
	}
	if _, err := c.ReadFile("sys/denied"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("the kind of error is lost: %v", err)
	}
	if c.Comment != "kept" {
		t.Errorf("comment %q", c.Comment)
	}
	if diff := cmp.Diff(before, dump(t, m)); diff != "" {
		t.Errorf("the original is changed:\n%s", diff)
	}
	_, err = m.Rewrite(func(_ string, data []byte) []byte {
		return []byte(strings.NewReplacer("closed", "x", "refused", "x").Replace(string(data)))
	}, func(string) bool { return false })
	if !errors.Is(err, fs.ErrExist) {
		t.Errorf("two names that became one: %v", err)
	}
}
