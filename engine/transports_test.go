package engine

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/topoctl/topoctl/engine/internal/transport"
)

// noting is a transport that notes what it is to dial.
type noting struct {
	transport.Transport
	addresses *[]string
}

func (d noting) Dial(_ context.Context, to transport.Dial) (transport.Conn, error) {
	*d.addresses = append(*d.addresses, to.Remote.Address)
	return nil, errors.New("not dialled")
}

// An engine within some addresses does not dial what a peer says that its other addresses are.
func TestWithin(t *testing.T) {
	var addresses []string
	f := Within(&transport.Factory{Make: func(transport.Env) (transport.Transport, error) { return noting{addresses: &addresses}, nil }}, func(_ context.Context, to netip.AddrPort) error {
		if to.Addr().IsLoopback() {
			return nil
		}
		return errors.New("not within")
	})
	x, err := f.(*transport.Factory).Make(transport.Env{})
	must(t, err)
	for _, address := range []string{"10.0.0.1:22", "127.0.0.1:7411", "[fe80::1%eth0]:1", "/tmp/topoctl-0/1-a.shm", "rdma1 mlx5_0/1"} {
		_, _ = x.Dial(t.Context(), transport.Dial{Remote: transport.Endpoint{Address: address}})
	}
	if want := []string{"127.0.0.1:7411", "/tmp/topoctl-0/1-a.shm", "rdma1 mlx5_0/1"}; !slices.Equal(addresses, want) {
		t.Errorf("dialled %q, want %q", addresses, want)
	}
}
