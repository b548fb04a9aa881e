package verbscheck

import "testing"

// Wherever it is built, the real source gives a report: devices, none, or why not.
func TestReal(t *testing.T) {
	r := New().Try(t.Context())
	if r == nil || r.Unavailable != "" && len(r.Devices) > 0 {
		t.Errorf("%+v", r)
	}
	t.Logf("%+v", r)
}
