//go:build noetcd

package registries

import (
	"context"
	"errors"
	"log/slog"

	"github.com/topoctl/topoctl/engine/registry"
)

func openEtcd(context.Context, string, *slog.Logger, func(string) string) (registry.Registry, error) {
	return nil, errors.New("this program was built without etcd's client (the build tag noetcd)")
}
