package texts

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A text says the same however it was pasted: as a quotation, from Windows, from a web page, with escapes.
func TestPastedTexts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	document := func(name string, data []byte) []byte {
		top, err := Decode(data)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out, err := top.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		plain := string(data)
		want := document(path, data)
		for how, text := range map[string]string{
			"quoted":   "> " + strings.ReplaceAll(plain, "\n", "\n> "),
			"Windows":  "\ufeff" + strings.ReplaceAll(plain, "\n", "\r\n"),
			"web page": strings.ReplaceAll(plain, " ", "\u00a0"),
			"escapes":  "\x1b[1m" + strings.ReplaceAll(plain, "\n", "\x1b[0m\n"),
		} {
			if got := document(path+" "+how, []byte(text)); !bytes.Equal(got, want) {
				t.Errorf("%s, %s: another host is read", path, how)
			}
		}
	}
	if _, err := Decode([]byte("no such text\n")); err == nil {
		t.Error("prose is a host")
	}
	quote := "> " + strings.ReplaceAll(ibstat+mapping+ipText, "\n", "\r\n> ")
	if got, want := networkSummary(parseNetwork(t, quote)), networkSummary(parseNetwork(t, ibstat+mapping+ipText)); got != want {
		t.Errorf("a quotation of network texts is\n%swant\n%s", got, want)
	}
}
