package cli

import (
	"bytes"
	"testing"
)

// The first variable that is set decides, by its codeset; without any, terminals have UTF-8.
func TestASCIILocale(t *testing.T) {
	for _, tt := range []struct {
		env  map[string]string
		want bool
	}{
		{nil, false},
		{map[string]string{"LANG": ""}, false},
		{map[string]string{"LANG": "C"}, true},
		{map[string]string{"LANG": "POSIX"}, true},
		{map[string]string{"LANG": "C.UTF-8"}, false},
		{map[string]string{"LANG": "en_US.utf8"}, false},
		{map[string]string{"LANG": "ca_ES.UTF-8@valencia"}, false},
		{map[string]string{"LANG": "en_US"}, true},
		{map[string]string{"LANG": "de_DE.ISO-8859-15@euro"}, true},
		{map[string]string{"LC_CTYPE": "UTF-8", "LANG": "C"}, false},
		{map[string]string{"LC_ALL": "C", "LC_CTYPE": "C.UTF-8", "LANG": "C.UTF-8"}, true},
		{map[string]string{"LC_ALL": "", "LANG": "C"}, true},
	} {
		s := Streams{Getenv: func(name string) string { return tt.env[name] }}
		if got := s.asciiLocale(); got != tt.want {
			t.Errorf("%v: ASCII is %v, want %v", tt.env, got, tt.want)
		}
	}
}

// Text is the same in ASCII however it is cut into writes, and colours stay.
func TestASCIIWriter(t *testing.T) {
	const in, want = "\x1b[1m12 µs ± 3 %\x1b[0m\t─ größe 世 \xff…\n", "\x1b[1m12 us +- 3 %\x1b[0m\t- gr\\u00f6\\u00dfe \\u4e16 \\ufffd...\n"
	for size := 1; size <= len(in); size++ {
		var out bytes.Buffer
		w := asciiWriter(&out)
		for rest := []byte(in); len(rest) > 0; {
			n := min(size, len(rest))
			if got, err := w.Write(rest[:n]); got != n || err != nil {
				t.Fatalf("%d, %v", got, err)
			}
			rest = rest[n:]
		}
		if out.String() != want {
			t.Errorf("in pieces of %d: %q, want %q", size, out.String(), want)
		}
	}
}
