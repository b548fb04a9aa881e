package registry

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// What names mean: addresses as they are, host names as the resolver says.
func TestP2PLookup(t *testing.T) {
	p := &p2p{resolve: func(ctx context.Context, network, host string) ([]netip.Addr, error) {
		switch host {
		case "n2":
			return []netip.Addr{netip.MustParseAddr("::ffff:10.0.0.2"), netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("10.0.0.2")}, nil
		case "empty":
			return nil, nil
		case "unset":
			return []netip.Addr{netip.IPv4Unspecified()}, nil
		case "servfail":
			return nil, &net.DNSError{Err: "server misbehaving", Name: host, IsTemporary: true}
		}
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}}
	for _, tt := range []struct {
		name, want, err string
		missing         bool
	}{
		{"10.0.0.1:7411", "10.0.0.1:7411", "", false},
		{"[2001:db8::1]:7411", "[2001:db8::1]:7411", "", false},
		{"[fe80::1%eth0]:7411", "[fe80::1%eth0]:7411", "", false},
		{"[::ffff:10.0.0.1]:1", "10.0.0.1:1", "", false},
		{"n2:65535", "10.0.0.2:65535 [2001:db8::2]:65535", "", false},
		{"n2", "", `want host:port`, true},
		{"2001:db8::1:7411", "", "with an IPv6 address in brackets", true},
		{"n2:http", "", `port "http": want 1 to 65535`, true},
		{"empty:1", "", `host "empty" has no address`, true},
		{"unset:1", "", "0.0.0.0 is not an address of a host", true},
		{"n9:1", "", "no such host", true},
		{"servfail:1", "", "server misbehaving", false},
		{strings.Repeat("n", 300) + ":1", "", "want host:port", true},
	} {
		r, err := p.Lookup(t.Context(), tt.name)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) || errors.Is(err, ErrNotFound) != tt.missing {
				t.Errorf("%q: %v: want %q", tt.name, err, tt.err)
			}
			continue
		}
		var got []string
		for _, a := range r.Addresses {
			got = append(got, a.String())
		}
		if err != nil || strings.Join(got, " ") != tt.want || r.Name != tt.name || r.Epoch != 0 {
			t.Errorf("%q: %+v, %v: want %s", tt.name, r, err, tt.want)
		}
	}
}

// A resolver that takes long is left when the context ends.
func TestP2PLookupEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := &p2p{resolve: func(ctx context.Context, _, host string) ([]netip.Addr, error) {
		cancel()
		<-ctx.Done()
		return nil, &net.DNSError{Err: ctx.Err().Error(), Name: host}
	}}
	if _, err := p.Lookup(ctx, "n2:7411"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
