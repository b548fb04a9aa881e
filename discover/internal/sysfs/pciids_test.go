package sysfs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The embedded database must be well formed in every line, in order, and
// without a number twice.
func TestEmbedded(t *testing.T) {
	text, _, found := strings.Cut(string(EmbeddedIDs()), "\nC 00  ")
	if !found {
		t.Error("no classes")
	}
	vendor, device, names := "", "", 0
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		names++
		if id, isDevice := strings.CutPrefix(line, "\t"); isDevice {
			if !wellFormedID([]byte(id)) || id[:4] <= device {
				t.Errorf("vendor %s: device line %q after %s", vendor, line, device)
			}
			device = id[:4]
			continue
		}
		if !wellFormedID([]byte(line)) || line[:4] <= vendor {
			t.Errorf("vendor line %q after %s", line, vendor)
		}
		vendor, device = line[:4], ""
	}
	db, err := OpenIDs(nil, EmbeddedIDs())
	if err != nil || len(db.names) != names {
		t.Errorf("%d of %d names were read, %v", len(db.names), names, err)
	}
}

func TestNames(t *testing.T) {
	db, err := OpenIDs(nil, []byte("10de  Mine\n\t2330  my H100\n\t\t10de 1234  a board\n"), EmbeddedIDs())
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
	if got := new(IDs).Vendor("10de"); got != "" {
		t.Errorf("an empty database says %q", got)
	}
}

func TestOpen(t *testing.T) {
	const text = "# comment\n\n10de  NVIDIA\n\t2330  H100\n\t\t10de 16c1  board\n\t2331  other\n\t\t10de 16c2  other board\n" +
		"15b3  Mellanox\n\t1021  CX7\n8086  Intel\nC 03  Display\n\t00  VGA\n10DE  upper\n\t9999  below nothing\n15\n\t\t\n\t\t10de 16c1\n"
	db, err := OpenIDs(func(vendor, device string) bool {
		return vendor != "15b3" && (device == "" || device == "2330")
	}, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := map[idNumber]string{{"10de", ""}: "NVIDIA", {"10de", "2330"}: "H100", {"8086", ""}: "Intel"}
	if diff := cmp.Diff(want, db.names, cmp.AllowUnexported(idNumber{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, err := OpenIDs(nil, []byte(strings.Repeat("x", maxLine+1))); err == nil {
		t.Error("a line without an end was taken")
	}
}

// Whatever a file has, the next database is read as well.
func FuzzOpen(f *testing.F) {
	f.Add(EmbeddedIDs()[:400])
	f.Add([]byte("10de  N\n\t2330  H\n\t\t10de 16c1  b\nC 03\nC\n\t\n\t\t\n"))
	f.Add([]byte("\t\tx\n10de\n10de  \xff\n\t2330  \xff\xfe\n\t\t1111 2222\xc3\xa9 x\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		db, err := OpenIDs(nil, data, EmbeddedIDs())
		if err == nil && db.Vendor("15b3") == "" {
			t.Error("the second database is lost")
		}
	})
}
