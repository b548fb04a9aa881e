package hosttree

import (
	"errors"
	"io/fs"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRecorder(t *testing.T) {
	m := smallHost(t)
	must(t, m.AddFile("sys/never", []byte("not asked for\n")))
	must(t, m.AddFile("sys/devices/pci0000:00/0000:00:01.0/serial", []byte("secret\n")))
	must(t, m.AddUnreadable("sys/config", fs.ErrPermission))
	must(t, m.AddUnreadableDir("sys/closed", fs.ErrPermission))
	rec := NewRecorder(m)
	ask := func(tree Tree) {
		for _, name := range []string{"sys/absolute/vendor", "sys/config", "sys/nothing/at/all", "sys"} {
			_, _ = tree.ReadFile(name) // sys is a directory: that says nothing about it
		}
		for _, name := range []string{"sys/class/net/eth0/device", "sys/closed", "sys"} {
			_, _ = tree.ReadDir(name)
		}
		_, _ = tree.ReadLink("sys/bus/pci/devices/0000:00:01.0")
		_, _ = tree.Lstat("etc/passwd")
	}
	ask(rec)
	const dev = "sys/devices/pci0000:00/0000:00:01.0"
	want := map[string]string{
		"etc": "directory", "sys": "directory", "sys/bus": "directory", "sys/class": "directory", "sys/devices": "directory",
		"sys/bus/pci": "directory", "sys/bus/pci/devices": "directory", "sys/class/net": "directory",
		"sys/devices/pci0000:00": "directory", dev: "directory", dev + "/net": "directory",
		dev + "/net/eth0": "directory", dev + "/power": "directory", "sys/closed": "directory",
		"sys/closed/":                      "permission denied",
		"sys/config":                       `"" permission denied`,
		"sys/never":                        `"" not captured`,
		"etc/passwd":                       `"" not captured`,
		dev + "/serial":                    `"" not captured`,
		dev + "/vendor":                    `"0x15b3\n" <nil>`,
		dev + "/net/eth0/device":           `-> "../../../0000:00:01.0" <nil>`,
		"sys/class/net/eth0":               `-> "../../devices/pci0000:00/0000:00:01.0/net/eth0" <nil>`,
		"sys/bus/pci/devices/0000:00:01.0": `-> "../../../devices/pci0000:00/0000:00:01.0" <nil>`,
		"sys/absolute":                     `-> "/sys/bus/pci/devices/0000:00:01.0/" <nil>`,
		"sys/dangling":                     `-> "../nowhere" <nil>`,
		"sys/loop":                         `-> "loop2" <nil>`,
		"sys/loop2":                        `-> "loop" <nil>`,
		"sys/outside":                      `-> "../../etc/passwd" <nil>`,
		"sys/outside-absolute":             `-> "/../etc/passwd" <nil>`,
	}
	if diff := cmp.Diff(want, dump(t, rec.Recorded())); diff != "" {
		t.Error(diff)
	}
	// A recording of the replay is the same recording.
	again := NewRecorder(rec.Recorded())
	ask(again)
	if diff := cmp.Diff(want, dump(t, again.Recorded())); diff != "" {
		t.Error(diff)
	}
}

// flaky gives other answers the second time.
type flaky struct {
	*Mem
	err error
}

func (f *flaky) ReadFile(name string) ([]byte, error) {
	if f.err != nil {
		return nil, pathError("read", name, f.err)
	}
	return f.Mem.ReadFile(name)
}

func TestRecorderKeepsContent(t *testing.T) {
	m := NewMem()
	must(t, m.AddFile("sys/speed", []byte("100\n")))
	f := &flaky{Mem: m, err: syscall.EINVAL}
	rec := NewRecorder(f)
	_, _ = rec.ReadFile("sys/speed")
	if _, err := rec.Recorded().ReadFile("sys/speed"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a failure is not recorded: %v", err)
	}
	f.err = nil
	data, err := rec.ReadFile("sys/speed")
	must(t, err)
	f.err = fs.ErrNotExist // the device went away
	_, _ = rec.ReadFile("sys/speed")
	copy(data, "XXX") // the reader may change what it got
	if got, err := rec.Recorded().ReadFile("sys/speed"); err != nil || string(got) != "100\n" {
		t.Errorf("content is lost: %q, %v", got, err)
	}
}

func TestRecorderConcurrent(t *testing.T) {
	m := smallHost(t)
	rec := NewRecorder(m)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				_ = answer(rec, "sys/absolute/vendor")
				_ = answer(rec, "sys/class/net/eth0/device")
				rec.Recorded()
			}
		})
	}
	wg.Wait()
	if got, want := answer(rec.Recorded(), "sys/absolute/vendor"), answer(m, "sys/absolute/vendor"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
