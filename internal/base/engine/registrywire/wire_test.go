package registrywire

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/engine/registry"
)

// Errors are the same by errors.Is on the other side, in the same words.
func TestErrors(t *testing.T) {
	for _, k := range kinds {
		err := fmt.Errorf("peer %q: %w", "n\x1b1", k.err)
		got := ErrorOf(err).Err()
		if !errors.Is(got, k.err) || got.Error() != err.Error() {
			t.Errorf("%v: %v", err, got)
		}
	}
	if ErrorOf(nil) != nil || (*Error)(nil).Err() != nil {
		t.Error("no error is one")
	}
	got := (&Error{Kind: "new", Text: strings.Repeat("x", 1<<20)}).Err()
	if len(got.Error()) != maxText || errors.Is(got, registry.ErrNotFound) || errors.Is(got, context.Canceled) {
		t.Errorf("%d bytes", len(got.Error()))
	}
}

// A line with a record is there again as it was, and one that no engine could have published is refused.
func TestAnswers(t *testing.T) {
	rec := registry.Record{Name: "n1", Epoch: 1<<63 + 1, Addresses: []netip.AddrPort{netip.MustParseAddrPort("[2001:db8::1]:7411")}, Serves: []string{"probe"}}
	line, err := Encode(Answer{ID: 3, Record: &rec, StaleNS: 5, End: true})
	if err != nil || line[len(line)-1] != '\n' {
		t.Fatal(err)
	}
	a, err := DecodeAnswer(line)
	if err != nil || a.ID != 3 || !a.End || a.Record.Epoch != rec.Epoch || a.Record.Addresses[0] != rec.Addresses[0] || a.Record.Stale != 5 || a.Record.Serves[0] != "probe" {
		t.Errorf("%+v, %v", a, err)
	}
	for _, bad := range []string{
		`{"id":1,"record":{"name":"","epoch":"1","addresses":["10.0.0.1:1"]}}`,
		`{"id":1,"record":{"name":"a","epoch":"1","addresses":["0.0.0.0:1"]}}`,
		`{"id":1,"record":{"name":"a\u001b","epoch":"1","addresses":["10.0.0.1:1"]}}`,
		`{"id":1,"stale_ns":-1}`, `{"id":-1}`, `{`, `[]`, `{"id":1}{"id":2}`,
		`{"id":1,"record":{"name":"a","epoch":"1","addresses":[` + strings.Repeat("[],", 1<<14) + `[]]}}`,
	} {
		if a, err := DecodeAnswer([]byte(bad)); err == nil {
			t.Errorf("%.80s: %+v", bad, a)
		}
	}
	if _, err := Encode(Answer{Program: strings.Repeat("x", MaxLine)}); err == nil {
		t.Error("a line without bound")
	}
	n := 0
	err = Lines(strings.NewReader("a\n\nb\n"+strings.Repeat("c", MaxLine+1)+"\n"), func([]byte) error { n++; return nil })
	if n != 2 || err == nil {
		t.Errorf("%d lines, %v", n, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"protocol":"topoctl.registry/v1","program":"x 1"}`))
	f.Add([]byte(`{"id":2,"record":{"name":"n1","epoch":"7","addresses":["10.0.0.1:7411"],"serves":["probe"]},"stale_ns":3,"end":true}`))
	f.Add([]byte(`{"id":1,"do":"open","url":"etcd://h1,h2/a","timeout_ns":1}`))
	f.Add([]byte(`{"id":4,"error":{"kind":"not-found","text":"no such engine"},"end":true}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if r, err := DecodeRequest(line); err == nil {
			if again, err := Encode(r); err == nil && len(again) > 6*MaxLine {
				t.Errorf("%d bytes of %d", len(again), len(line))
			}
		}
		a, err := DecodeAnswer(line)
		if err != nil {
			return
		}
		if a.Record != nil && a.Record.Check() != nil {
			t.Errorf("a bad record: %+v", a.Record)
		}
		again, err := Encode(a)
		if err != nil {
			return
		}
		if _, err := DecodeAnswer(again); err != nil {
			t.Errorf("%s: %v", again, err)
		}
	})
}
