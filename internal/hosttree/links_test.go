package hosttree

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/testkit/longtest"
)

// answer puts the answers of a tree about one name into one line.
func answer(tree Tree, name string) string {
	data, err := tree.ReadFile(name)
	list, lerr := tree.ReadDir(name)
	target, terr := tree.ReadLink(name)
	real, rerr := RealPath(tree, name)
	var names []string
	for _, e := range list {
		names = append(names, e.Name()+e.Type().String())
	}
	_, serr := fs.Stat(tree, name)
	_, xerr := tree.Lstat(name)
	return strings.Join([]string{
		string(data), kindOf(err), strings.Join(names, ","), kindOf(lerr), target, kindOf(terr),
		real, kindOf(rerr), kindOf(serr), kindOf(xerr),
	}, "|")
}

func kindOf(err error) string {
	for _, k := range []error{ErrEscapes, ErrLoop, fs.ErrNotExist, fs.ErrInvalid, syscall.EISDIR, syscall.ENOTDIR, syscall.EINVAL} {
		if errors.Is(err, k) {
			return k.Error()
		}
	}
	if err != nil {
		return "other: " + err.Error()
	}
	return ""
}

// TestLinksSameEverywhere makes trees of random links and asks every kind of
// tree about every name: all must answer as Mem does, and so must the replay
// of what a recorder saw, and an extracted copy.
func TestLinksSameEverywhere(t *testing.T) {
	elems := []string{"a", "b", "c"}
	path := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom(elems), 1, 4).Draw(t, "path"), "/")
	})
	target := rapid.Custom(func(t *rapid.T) string {
		root := rapid.SampledFrom([]string{"", "", "/"}).Draw(t, "root")
		more := rapid.SampledFrom([]string{"", "", "/", "/."}).Draw(t, "end")
		return root + strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "..", ".."}), 1, 4).Draw(t, "target"), "/") + more
	})
	rapid.Check(t, func(rt *rapid.T) {
		m := NewMem()
		must(t, m.AddDir("sys"))
		for range rapid.IntRange(1, 8).Draw(rt, "entries") {
			name := path.Draw(rt, "name")
			switch rapid.IntRange(0, 3).Draw(rt, "kind") {
			case 0:
				_ = m.AddFile(name, []byte(name)) // a name that is taken is refused: fine
			default:
				_ = m.AddSymlink(name, target.Draw(rt, "target"))
			}
		}
		dir := longtest.TempDir(t)
		writeTree(t, m, dir)
		fast, err := OpenDir(dir)
		must(t, err)
		defer fast.Close()
		in, err := newRootBackend(dir)
		must(t, err)
		slow := &Dir{path: dir, in: in}
		defer slow.Close()
		rec := NewRecorder(m)
		names := rapid.SliceOfN(path, 1, 10).Draw(rt, "asked")
		trees := map[string]Tree{"openat2": fast, "os.Root": slow, "recorder": rec, "unknown tree": struct{ Tree }{m}}
		for _, name := range names {
			for kind, tree := range trees {
				if got, want := answer(tree, name), answer(m, name); got != want {
					rt.Fatalf("%s: %s:\n got %s\nwant %s\n%v", kind, name, got, want, dump(t, m))
				}
			}
		}
		replay, err := ParseArchive(archive(t, rec.Recorded(), ""))
		must(t, err)
		for _, name := range names {
			if got, want := answer(replay, name), answer(m, name); got != want {
				rt.Fatalf("replay: %s:\n got %s\nwant %s\n%v\n%v", name, got, want, dump(t, m), dump(t, replay))
			}
		}
	})
}
