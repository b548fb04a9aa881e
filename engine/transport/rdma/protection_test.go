package rdma_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/transport/rdma"
)

// RDMA is not used where bytes are to be protected, on hosts with devices and without.
func TestNoRDMAForProtectedBytes(t *testing.T) {
	for protection, refused := range map[engine.Protection]bool{"": false, "headers": false, "payload": true, "sealed": true} {
		e, err := engine.New(t.Context(), engine.Options{
			Security: engine.Security{Protection: protection}, Transports: []engine.TransportFactory{rdma.Factory(rdma.Options{Devices: []string{"no_such_device"}}), engine.SHM()},
		})
		if err != nil {
			t.Fatal(err)
		}
		why := e.Unavailable()
		if len(why) != 1 || !errors.Is(why[0], engine.ErrUnavailable) || strings.Contains(why[0].Error(), "with protection \""+string(protection)+"\"") != refused {
			t.Errorf("%q: %v", protection, why)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}
