package memory

import (
	"errors"
	"testing"
)

// Rights never add to what a region grants.
func TestRights(t *testing.T) {
	tab := NewTable(4)
	defer closeTable(t, tab)
	regions := map[string]*Region{}
	for name, grant := range map[string]Grant{"both": PeerRead | PeerWrite, "read": PeerRead, "none": None} {
		r, err := tab.Add(alloc(t, 4096, Options{}), name, "", grant)
		if err != nil {
			t.Fatal(err)
		}
		regions[name] = r
	}
	asked := 0
	narrow := NewRights(func(name string) Grant {
		asked++
		return map[string]Grant{"both": PeerRead, "read": PeerRead | PeerWrite, "none": PeerRead | PeerWrite}[name]
	})
	for range 2 {
		for _, c := range []struct {
			rights *Rights
			name   string
			want   Grant
			err    error
		}{
			{nil, "both", PeerRead | PeerWrite, nil}, {nil, "read", PeerWrite, ErrDenied}, {nil, "none", None, ErrNoRegion},
			{narrow, "both", PeerRead, nil}, {narrow, "both", PeerWrite, ErrDenied}, {narrow, "read", PeerRead, nil},
			{narrow, "read", PeerWrite, ErrDenied}, {narrow, "none", PeerRead, ErrNoRegion},
			{NewRights(func(string) Grant { return None }), "both", PeerRead, ErrNoRegion},
		} {
			r, err := tab.PinFor(c.rights, regions[c.name].ID(), 0, 10, c.want)
			if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Errorf("%s of %q: %v, want %v", c.want, c.name, err, c.err)
			}
			if r != nil {
				r.Unpin()
			}
		}
	}
	if asked != len(regions) {
		t.Errorf("asked %d times about %d regions", asked, len(regions))
	}
	if narrow.All(regions["both"]) || !narrow.All(regions["read"]) {
		t.Error("what is less than a region grants is taken for all of it, or the reverse")
	}
}
