package redact_test

import (
	"testing"

	"github.com/topoctl/topoctl/internal/redact"
)

// What a redacted capture has, zero, and what cannot be a device's are no identities.
func TestReal(t *testing.T) {
	for _, tt := range []struct {
		name string
		is   func(string) bool
		id   string
		want bool
	}{
		{"a GPU's UUID", redact.UUID, "GPU-8225132f-b8f7-24e5-c7d7-80858e750870", true},
		{"a stand-in", redact.UUID, "GPU-00000000-0000-0000-0000-000000000001", false},
		{"no UUID", redact.UUID, "", false},
		{"a serial number", redact.Serial, "1652122012345", true},
		{"a stand-in", redact.Serial, "SN00000001", false},
		{"zero", redact.Serial, "0", false},
		{"a GUID", redact.GUID, "a088:c203:0094:dc60", true},
		{"of a stand-in's address", redact.GUID, "0200:0000:0000:0001", false},
		{"zero", redact.GUID, "0000:0000:0000:0000", false},
		{"a MAC address", redact.MAC, "A0:88:c2:94:dc:60", true},
		{"one that software gave", redact.MAC, "52:54:00:6d:90:02", true},
		{"a stand-in", redact.MAC, "02:00:00:00:00:01", false},
		{"a group", redact.MAC, "01:00:5e:00:00:01", false},
		{"zero", redact.MAC, "00:00:00:00:00:00", false},
		{"IP over InfiniBand's", redact.MAC, "00:00:10:29:fe:80:00:00:00:00:00:00:a0:88:c2:03:00:94:dc:60", false},
	} {
		if got := tt.is(tt.id); got != tt.want {
			t.Errorf("%s, %q: %v", tt.name, tt.id, got)
		}
	}
}
