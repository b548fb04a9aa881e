package pciids

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The embedded database must be well formed in every line, in order, and
// without a number twice: pcidb would take what it gets.
func TestEmbedded(t *testing.T) {
	clean, err := Select(bytes.NewReader(Embedded()), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, _, found := strings.Cut(string(Embedded()), "\nC 00  ")
	if !found {
		t.Error("no classes")
	}
	var want []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") && strings.TrimSpace(line) != "" {
			want = append(want, strings.TrimSuffix(line, "\n"))
		}
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSuffix(string(clean), "\n"), "\n")); diff != "" {
		t.Errorf("lines that are not well formed (-all +well formed)\n%s", diff)
	}
	vendor, device := "", ""
	for _, line := range want {
		if strings.HasPrefix(line, "\t") {
			if line[1:5] <= device {
				t.Errorf("vendor %s: device %s comes after %s", vendor, line[1:5], device)
			}
			device = line[1:5]
			continue
		}
		if line[:4] <= vendor {
			t.Errorf("vendor %s comes after %s", line[:4], vendor)
		}
		vendor, device = line[:4], ""
	}
}

func TestNames(t *testing.T) {
	db, err := Open(nil, []byte("10de  Mine\n\t2330  my H100\n\t\t10de 1234  a board\n"), Embedded())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ vendor, device, wantVendor, wantDevice string }{
		{"10de", "2330", "Mine", "my H100"},
		{"10de", "20b2", "Mine", "GA100 [A100 SXM4 80GB]"},
		{"15b3", "1021", "Mellanox Technologies", "MT2910 Family [ConnectX-7]"},
		{"1002", "74a1", "Advanced Micro Devices, Inc. [AMD/ATI]", "Aqua Vanjaram [Instinct MI300X]"},
		{"15b3", "ffff", "Mellanox Technologies", ""},
		{"fffe", "0001", "", ""},
		{"", "", "", ""},
	} {
		if got := db.Vendor(tt.vendor); got != tt.wantVendor {
			t.Errorf("vendor %s is %q, want %q", tt.vendor, got, tt.wantVendor)
		}
		if got := db.Device(tt.vendor, tt.device); got != tt.wantDevice {
			t.Errorf("device %s:%s is %q, want %q", tt.vendor, tt.device, got, tt.wantDevice)
		}
	}
	if got := new(DB).Vendor("10de"); got != "" {
		t.Errorf("an empty database says %q", got)
	}
}

func TestSelect(t *testing.T) {
	const text = "# comment\n\n10de  NVIDIA\n\t2330  H100\n\t\t10de 16c1  board\n\t2331  other\n\t\t10de 16c2  other board\n" +
		"15b3  Mellanox\n\t1021  CX7\n8086  Intel\nC 03  Display\n\t00  VGA\n10DE  upper\n\t9999  below nothing\n15\n\t\t\n\t\t10de 16c1\n"
	got, err := Select(strings.NewReader(text), func(vendor, device string) bool {
		return vendor != "15b3" && (device == "" || device == "2330")
	})
	want := "10de  NVIDIA\n\t2330  H100\n\t\t10de 16c1  board\n8086  Intel\n"
	if diff := cmp.Diff(want, string(got)); diff != "" || err != nil {
		t.Errorf("error %v (-want +got)\n%s", err, diff)
	}
	if _, err := Select(strings.NewReader(strings.Repeat("x", maxLine+1)), nil); err == nil {
		t.Error("a line without an end was taken")
	}
}

// File is readable by its path until it is removed, more than once.
func TestFile(t *testing.T) {
	path, remove, err := File([]byte("10de  x\n"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if data, err := os.ReadFile(path); err != nil || string(data) != "10de  x\n" {
			t.Errorf("%q, %v", data, err)
		}
	}
	remove()
	if _, err := os.Stat(path); err == nil {
		t.Errorf("%s is still there", path)
	}
	path, remove, err = tempFile([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	remove()
	if _, err := os.Stat(path); err == nil {
		t.Errorf("%s is still there", path)
	}
}

// Whatever a file has, pcidb must survive what Select leaves of it.
func FuzzOpen(f *testing.F) {
	f.Add(Embedded()[:400])
	f.Add([]byte("10de  N\n\t2330  H\n\t\t10de 16c1  b\nC 03\nC\n\t\n\t\t\n"))
	f.Add([]byte("\t\tx\n10de\n10de  \xff\n\t2330  \xff\xfe\n\t\t1111 2222\xc3\xa9 x\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		db, err := Open(nil, data, Embedded())
		if err == nil && db.Vendor("15b3") == "" {
			t.Error("the second database is lost")
		}
	})
}
