package hosttree

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// dump lists everything that a tree answers, for comparison.
func dump(t testing.TB, tree Tree) map[string]string {
	t.Helper()
	all := make(map[string]string)
	var walk func(string)
	walk = func(dir string) {
		entries, err := tree.ReadDir(dir)
		if err != nil {
			all[dir+"/"] = errorText(cause(err))
			entries = hiddenEntries(tree, dir)
		}
		for _, e := range entries {
			name := childName(dir, e.Name())
			switch e.Type() {
			case fs.ModeDir:
				all[name] = "directory"
				walk(name)
			case fs.ModeSymlink:
				target, err := tree.ReadLink(name)
				all[name] = fmt.Sprintf("-> %q %v", target, err)
			default:
				data, err := tree.ReadFile(name)
				if err != nil {
					err = errors.New(errorText(cause(err)))
				}
				all[name] = fmt.Sprintf("%q %v", data, err)
			}
		}
	}
	walk(".")
	return all
}

func archive(t testing.TB, tree Tree, comment string) []byte {
	t.Helper()
	var buf bytes.Buffer
	must(t, WriteArchive(&buf, tree, comment))
	return buf.Bytes()
}

func TestArchiveText(t *testing.T) {
	m := NewMem()
	must(t, m.AddFile("sys/class/net/eth0/mtu", []byte("1500\n")))
	must(t, m.AddFile("sys/class/net/eth0/name", []byte("eth0")))
	must(t, m.AddFile("sys/empty", nil))
	must(t, m.AddFile("sys/config", []byte{0x86, 0x80, 0, 0xff}))
	must(t, m.AddFile("sys/markers", []byte("-- not a header --\n\\-- nor this\n --\nplain\n")))
	must(t, m.AddFile("sys/with space", []byte("\n\n")))
	must(t, m.AddUnreadable("sys/class/net/eth0/speed", syscall.EINVAL))
	must(t, m.AddUnreadable("sys/secret", fs.ErrPermission))
	must(t, m.AddUnreadable("sys/unread", ErrNotCaptured))
	must(t, m.AddUnreadableDir("sys/closed", fs.ErrPermission))
	must(t, m.AddSymlink("sys/link", "class/net/eth0"))
	must(t, m.AddSymlink("sys/odd link", "a b\n"))
	must(t, m.AddDir("sys/bus/pci/slots"))
	const want = `topoctl-tree/v1
# machine: test
#
# two lines
-- sys/bus/pci/slots/ --
-- sys/class/net/eth0/mtu --
1500
-- sys/class/net/eth0/name noeol --
eth0
-- sys/class/net/eth0/speed error invalid argument --
-- sys/closed/ error permission denied --
-- sys/config hex --
86 80 00 ff
-- sys/empty --
-- sys/link -> class/net/eth0 --
-- sys/markers --
\-- not a header --
\\-- nor this
 --
plain
-- "sys/odd link" -> "a b\n" --
-- sys/secret error permission denied --
-- sys/unread error not captured --
-- "sys/with space" --


`
	got := archive(t, m, "machine: test\n\ntwo lines")
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Fatal(diff)
	}
	back, err := ParseArchive(got)
	must(t, err)
	if diff := cmp.Diff(dump(t, m), dump(t, back)); diff != "" {
		t.Error(diff)
	}
	if back.Comment != "machine: test\n\ntwo lines" {
		t.Errorf("comment %q", back.Comment)
	}
	if _, err := back.ReadFile("sys/class/net/eth0/speed"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("speed: %v", err)
	}
	if again := archive(t, back, back.Comment); !bytes.Equal(again, got) {
		t.Errorf("written again:\n%s", again)
	}
}

func compress(t testing.TB, data []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	_, err := z.Write(data)
	must(t, errors.Join(err, z.Close()))
	return buf.Bytes()
}

func TestArchiveGzip(t *testing.T) {
	m := smallHost(t)
	packed := compress(t, archive(t, m, ""))
	back, err := ParseArchive(packed)
	must(t, err)
	if diff := cmp.Diff(dump(t, m), dump(t, back)); diff != "" {
		t.Error(diff)
	}
	if _, err := ParseArchive(packed[:len(packed)/2]); err == nil {
		t.Error("half a packed archive: no error")
	}
	bomb := compress(t, append([]byte(ArchiveFormat+"\n"), make([]byte, maxArchive)...))
	if _, err := ParseArchive(bomb); err == nil || !strings.Contains(err.Error(), "more than 64 MiB") {
		t.Errorf("bomb of %d bytes: %v", len(bomb), err)
	}
}

func TestDetectArchive(t *testing.T) {
	for text, want := range map[string]bool{
		ArchiveFormat + "\n-- x --\n": true,
		ArchiveFormat:                 true,
		"topoctl-tree/v12\n":          false,
		"machine: x\n":                false,
		"":                            false,
		"\x1f\x8b\x08broken":          false,
	} {
		if got := DetectArchive([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestParseArchiveRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                         `line 0: the first line is not "topoctl-tree/v1"`,
		"topoctl-tree/v2\n":        `line 1: the first line is not "topoctl-tree/v1"`,
		"topoctl-tree/v1\r\n":      `line 1: lines end in "\r\n"`,
		"@\nhello\n":               `line 2: neither a comment nor an entry`,
		"@\n-- a\n":                `line 2: entry "-- a" does not end in " --"`,
		"@\n-- ../a --\n":          `line 2: entry "../a": invalid argument`,
		"@\n-- /a --\n":            `line 2: entry "/a": invalid argument`,
		"@\n-- a --\nx\n-- a --\n": `line 4: entry "a": file already exists`,
		"@\n-- a --\n-- a/b --\n":  `line 3: entry "a/b": a above it is not a directory`,
		"@\n-- a -> b --\nx\n":     `line 3: content where none can be: "a"`,
		"@\n-- a/ --\nx\n":         `line 3: content where none can be: "a/"`,
		"@\n-- a -> --\n":          `line 2: entry "a": link target "": empty`,
		"@\n-- a -> b c --\n":      `line 2: link target "b c": want one name`,
		"@\n-- a what --\n":        `line 2: entry "a": "what" is not understood`,
		"@\n-- a/ hex --\n":        `line 2: entry "a/": "hex" is not understood`,
		"@\n-- a hex --\n0g\n":     `line 3: "0g": want two hexadecimal digits`,
		"@\n-- a noeol --\n":       `line 2: noeol without a line`,
		"@\n-- \"a --\n":           `line 2: "\"a": quote without end`,
		"@\n--  --\n":              `line 2: entry "": invalid argument`,
		"@\n-- a --\n" + strings.Repeat("0123456789abcdef\n", MaxFileSize/17+2): "larger than 4 MiB",
		"@\n" + strings.Repeat("x", maxArchive):                                 "hosttree: archive: larger than 64 MiB",
	} {
		_, err := ParseArchive([]byte(strings.Replace(text, "@", ArchiveFormat, 1)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v\nwant %s", text, err, want)
		}
	}
}

// TestParseArchiveManyDirectories: a short line can make thousands of
// directories, so these are counted too.
func TestParseArchiveManyDirectories(t *testing.T) {
	p := archiveParser{tree: NewMem(), most: 3000}
	deep := strings.Repeat("/d", 2000)
	p.rest = []byte(ArchiveFormat + "\n-- a" + deep + "/ --\n-- b" + deep + "/ --\n")
	if err := p.parse(); err == nil || !strings.Contains(err.Error(), "more than 3000") {
		t.Errorf("%v", err)
	}
}

// genTree makes any tree that Mem can hold, with hostile names and contents.
func genTree(t *rapid.T) *Mem {
	elem := rapid.OneOf(
		rapid.SampledFrom([]string{"a", "b", "0000:00:01.0", "with space", "-- x --", "->", "..."}),
		rapid.StringMatching(`[^/\x00]{1,4}`),
	)
	name := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(elem, 1, 4).Draw(t, "elems"), "/")
	})
	content := rapid.OneOf(
		rapid.SliceOf(rapid.Byte()),
		rapid.Custom(func(t *rapid.T) []byte {
			lines := rapid.SampledFrom([]string{"-- x --\n", "\\", "\\\n", "--", "\n", "text\n", "#", "\r\n", "0x1\n"})
			return []byte(strings.Join(rapid.SliceOf(lines).Draw(t, "lines"), ""))
		}),
	)
	m := NewMem()
	for range rapid.IntRange(0, 12).Draw(t, "entries") {
		n := name.Draw(t, "name")
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			_ = m.AddDir(n) // a name that is taken is refused: fine
		case 1:
			_ = m.AddSymlink(n, rapid.StringMatching(`[^\x00]{1,8}`).Draw(t, "target"))
		case 2:
			_ = m.AddUnreadable(n, rapid.SampledFrom(knownErrors).Draw(t, "error").err)
		case 3:
			_ = m.AddUnreadableDir(n, errors.New(rapid.String().Draw(t, "text")))
		default:
			_ = m.AddFile(n, content.Draw(t, "content"))
		}
	}
	return m
}

func TestArchiveRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := genTree(rt)
		comment := rapid.StringMatching(`([a-z# -]{0,8}[a-z]\n?){0,3}`).Draw(rt, "comment")
		text := archive(t, m, comment)
		back, err := ParseArchive(text)
		if err != nil {
			rt.Fatalf("%v\n%s", err, text)
		}
		if diff := cmp.Diff(dump(t, m), dump(t, back)); diff != "" {
			rt.Fatalf("%s\n%s", diff, text)
		}
		if again := archive(t, back, back.Comment); !bytes.Equal(again, text) {
			rt.Fatalf("%q\nwritten again:\n%q", text, again)
		}
	})
}

func FuzzParseArchive(f *testing.F) {
	f.Add(archive(f, smallHost(f), "a comment"))
	f.Add([]byte(ArchiveFormat + "\n-- a hex --\n00 ff\n-- b noeol --\nx\n-- \"c d\" -> \"e f\" --\n-- g/ error x --\n"))
	f.Add(compress(f, []byte(ArchiveFormat+"\n-- a --\n\\\\\n")))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseArchive(data)
		if err != nil {
			return
		}
		text := archive(t, m, m.Comment)
		back, err := ParseArchive(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if diff := cmp.Diff(dump(t, m), dump(t, back)); diff != "" {
			t.Error(diff)
		}
	})
}
