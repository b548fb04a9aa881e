package registrytest_test

import (
	"fmt"
	"testing"

	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/engine/registry/registrytest"
)

// A registry of one's own is held to what engines rely on.
func ExampleRun() {
	var t *testing.T // that of a test
	shared := registrytest.NewMemory(0, nil)
	registrytest.Run(t, registrytest.Suite{
		Open: func(*testing.T) registry.Registry { return shared.Client() },
		Name: func(i int) string { return fmt.Sprint("engine-", i) },
	})
}
