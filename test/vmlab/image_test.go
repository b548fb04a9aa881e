package vmlab

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// entry is one file of an archive, read back.
type entry struct {
	mode int
	data string
}

// readCPIO reads what WriteCPIO wrote, with the fields where the kernel looks for them.
func readCPIO(t *testing.T, archive []byte) (names []string, entries map[string]entry) {
	t.Helper()
	entries = map[string]entry{}
	for at := 0; ; {
		head := archive[at:]
		field := func(i int) int {
			n, err := strconv.ParseUint(string(head[6+8*i:14+8*i]), 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
		if string(head[:6]) != "070701" || at%4 != 0 {
			t.Fatalf("no header at %d: %q", at, head[:6])
		}
		mode, size, length := field(1), field(6), field(11)
		name := string(head[110 : 110+length-1])
		start := at + (110+length+3)/4*4
		if name == "TRAILER!!!" {
			return names, entries
		}
		names = append(names, name)
		entries[name] = entry{mode, string(archive[start : start+size])}
		at = start + (size+3)/4*4
	}
}

func TestWriteCPIO(t *testing.T) {
	file := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(file, []byte("five5"), 0o755); err != nil {
		t.Fatal(err)
	}
	tree := bootTree{
		"a/b/c": {Data: []byte("content")}, "a/run": {From: file}, "a/forced": {Data: []byte("x"), Exec: true},
		"link": {Link: "a/b"}, "proc": {Folder: true}, "a/b": {Folder: true}, "empty": {},
	}
	var out, again bytes.Buffer
	if err := errors.Join(writeCPIO(&out, tree), writeCPIO(&again, tree)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), again.Bytes()) {
		t.Error("equal trees give different archives")
	}
	names, got := readCPIO(t, out.Bytes())
	if s := strings.Join(names, " "); s != "a a/b a/b/c a/forced a/run empty link proc" {
		t.Errorf("names: %s", s)
	}
	for name, want := range map[string]entry{
		"a": {0o040755, ""}, "a/b/c": {0o100644, "content"}, "a/run": {0o100755, "five5"}, "a/forced": {0o100755, "x"},
		"link": {0o120777, "a/b"}, "empty": {0o100644, ""},
	} {
		if got[name] != want {
			t.Errorf("%s: %o %q, want %o %q", name, got[name].mode, got[name].data, want.mode, want.data)
		}
	}
	if err := writeCPIO(&out, bootTree{"x": {From: file + ".none"}}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// The archive is one that others read.
func TestCPIOProgram(t *testing.T) {
	cpio, err := exec.LookPath("cpio")
	if err != nil {
		t.Skip("cpio is not installed: nothing else reads the archive")
	}
	var out bytes.Buffer
	if err := writeCPIO(&out, bootTree{"d/odd": {Data: []byte("123")}, "d/l": {Link: "odd"}}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(cpio, "-it", "--quiet")
	cmd.Stdin = &out
	list, err := cmd.CombinedOutput()
	if err != nil || string(list) != "d\nd/l\nd/odd\n" {
		t.Errorf("%q, %v", list, err)
	}
}

// bzImage makes a file with the boot header of a kernel and a payload.
func bzImage(payload []byte) []byte {
	const sectors = 2
	img := make([]byte, (sectors+1)*512+64)
	img[0x1f1] = sectors
	copy(img[0x202:], "HdrS")
	binary.LittleEndian.PutUint16(img[0x206:], 0x20f)
	binary.LittleEndian.PutUint32(img[0x248:], 64)
	binary.LittleEndian.PutUint32(img[0x24c:], uint32(len(payload)))
	return append(img, payload...)
}

func packed(t *testing.T, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return binary.LittleEndian.AppendUint32(out.Bytes(), uint32(len(text)))
}

func TestVmlinux(t *testing.T) {
	const kernel = "\x7fELF and the rest of it"
	good := bzImage(packed(t, kernel))
	if got, err := unpackVmlinux(good); err != nil || string(got) != kernel {
		t.Errorf("%q, %v", got, err)
	}
	old := bytes.Clone(good)
	old[0x206], old[0x207] = 7, 2
	for want, img := range map[string][]byte{
		"no boot header": []byte("MZ"), "no ELF file": bzImage(packed(t, "a.out")), "boot protocol 0x207": old,
		"in a file of": good[:len(good)-1], "not known: 42 5a": bzImage([]byte("BZh91AY&SY....")),
	} {
		if _, err := unpackVmlinux(img); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

func FuzzVmlinux(f *testing.F) {
	f.Add(bzImage([]byte("\x1f\x8b0123456789")))
	f.Fuzz(func(_ *testing.T, img []byte) {
		if payload, err := payloadOf(img); err == nil && len(payload) > len(img) {
			panic(fmt.Sprint(len(payload)))
		}
	})
}

// What a program of this machine needs is what its loader says.
func TestLibraries(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skipf("no sh: no program whose libraries are known: %v", err)
	}
	folders := []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/lib/aarch64-linux-gnu"}
	libs, err := sharedLibraries([]string{sh, "image_test.go"}, folders)
	if err != nil {
		t.Skipf("the libraries of sh are in none of %v: %v", folders, err)
	}
	for name, file := range libs {
		if _, err := os.Stat(file); err != nil || filepath.Base(file) != name {
			t.Errorf("%s: %s, %v", name, file, err)
		}
	}
	if len(libs) > 0 && libs["libc.so.6"] == "" {
		t.Errorf("%s needs %v, without libc.so.6", sh, libs)
	}
	if len(libs) > 0 {
		_, err := sharedLibraries([]string{sh}, []string{t.TempDir()})
		if err == nil || !strings.Contains(err.Error(), "(for "+filepath.Base(sh)+")") {
			t.Errorf("libraries that are nowhere: %v", err)
		}
	}
	if _, err := sharedLibraries([]string{"none"}, nil); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// Without the programs it needs, the lab is not broken but cannot be had.
func TestUnavailable(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := getImage(t.Context(), imageOptions{Cache: t.TempDir()})
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "install") {
		t.Errorf("%v", err)
	}
}

// fakeTools puts scripts with these contents on the path, and nothing else.
func fakeTools(t *testing.T, scripts map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
}

func TestKernelPackage(t *testing.T) {
	fakeTools(t, map[string]string{"apt-cache": "echo linux-image-amd64; echo '  Depends: linux-image-6.1.0-1-amd64'; echo '  Conflicts: x'"})
	a, err := newApt(t.Context(), t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"linux-image-amd64": "linux-image-6.1.0-1-amd64", "linux-image-9": "linux-image-9"} {
		if got, err := a.kernel(t.Context(), name); err != nil || got != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	fakeTools(t, map[string]string{"apt-cache": "echo 'E: No packages found' >&2; exit 100"})
	if _, err := a.kernel(t.Context(), "linux-image-amd64"); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "No packages found") {
		t.Error(err)
	}
}

// A registry that gives nothing is a reason, and one package is fetched once.
func TestFetch(t *testing.T) {
	fakeTools(t, map[string]string{
		"apt-get":  `for p; do :; done; case "$*" in *update*) exit 0;; *secret*) echo "E: 404 Not Found" >&2; exit 100;; esac; echo x > "${p}_1_amd64.deb"; echo fetched >> log`,
		"dpkg-deb": `echo "$2" >> "$3.unpacked"`,
	})
	folder, into := t.TempDir(), filepath.Join(t.TempDir(), "root")
	a := &apt{private: true}
	for range 2 {
		if err := a.fetch(t.Context(), folder, into, "one"); err != nil {
			t.Fatal(err)
		}
	}
	log, _ := os.ReadFile(filepath.Join(folder, "log"))
	unpacked, _ := os.ReadFile(into + ".unpacked")
	if string(log) != "fetched\n" || strings.Count(string(unpacked), "one_1_amd64.deb") != 2 {
		t.Errorf("log %q, unpacked %q", log, unpacked)
	}
	err := a.fetch(context.Background(), folder, into, "secret")
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "404") {
		t.Error(err)
	}
}

// An image in the cache is taken as it is, if all of it is there.
func TestCache(t *testing.T) {
	scripts := map[string]string{}
	for p := range hostPrograms {
		scripts[p] = "echo broken >&2; exit 1"
	}
	scripts["apt-cache"] = "exit 1"
	fakeTools(t, scripts)
	cache := t.TempDir()
	dir := filepath.Join(cache, "image-"+key(""))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"image.json": `{"release": "6.1", "libraries": ["libc.so.6"]}`, "vmlinux": "k", "base.cpio": "b"} {
		if _, err := getImage(t.Context(), imageOptions{Cache: cache, Log: t.Logf}); !errors.Is(err, ErrUnavailable) {
			t.Errorf("before %s: %v", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	img, err := getImage(t.Context(), imageOptions{Cache: cache, Log: t.Logf})
	if err != nil || img.Release != "6.1" || img.Built || img.Kernel != filepath.Join(dir, "vmlinux") || img.Libraries[0] != "libc.so.6" {
		t.Errorf("%+v, %v", img, err)
	}
	if key("") == key("bookworm-backports/linux-image-amd64") {
		t.Error("two kernels share an image")
	}
}
