package registry_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/engine/registry/registrytest"
)

// With a registry, names are the registry's, and addresses are addresses, whoever has registered them.
func TestWithAddresses(t *testing.T) {
	m := registrytest.NewMemory(0, nil).Client()
	r := registry.WithAddresses(m)
	at := func(s string) []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort(s)} }
	for _, rec := range []registry.Record{
		{Name: "n1", Epoch: 1, Addresses: at("10.0.0.1:7411")},
		{Name: "127.0.0.1:7", Epoch: 1, Addresses: at("10.6.6.6:666")}, // somebody's trap
		{Name: "localhost:99", Epoch: 1, Addresses: at("10.0.0.9:7411")},
	} {
		if _, err := m.Publish(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"n1": "10.0.0.1:7411", "127.0.0.1:7": "127.0.0.1:7", "localhost:99": "10.0.0.9:7411", "[::1]:8": "[::1]:8",
	} {
		rec, err := r.Lookup(t.Context(), name)
		if err != nil || len(rec.Addresses) != 1 || rec.Addresses[0].String() != want {
			t.Errorf("%s: %+v, %v: want %s", name, rec, err, want)
		}
	}
	if rec, err := r.Lookup(t.Context(), "localhost:98"); err != nil || len(rec.Addresses) == 0 || rec.Epoch != 0 {
		t.Errorf("localhost:98: %+v, %v: want the resolver's", rec, err)
	}
	if rec, err := r.Lookup(t.Context(), "n2"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("n2: %+v, %v", rec, err)
	}
	l, ok := r.(registry.Lister)
	if !ok {
		t.Fatal("it lists no more")
	}
	if all, err := l.List(t.Context()); err != nil || len(all.Records) != 3 || all.Records[2].Name != "n1" {
		t.Errorf("%+v, %v", all, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Lookup(ctx, "n1"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
