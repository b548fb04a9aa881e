//go:build !noetcd

package registries

import (
	"context"
	"io"
	"log/slog"

	"google.golang.org/grpc/grpclog"

	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/engine/registry/etcd"
)

// gRPC's log stays off the standard error, which is the command's, or that of a program with the C library. What goes
// wrong is in the errors of calls. It may be set before gRPC is used only (grpclog.SetLoggerV2).
func init() { grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)) }

func openEtcd(ctx context.Context, url string, log *slog.Logger, getenv func(string) string) (registry.Registry, error) {
	o, err := etcd.ParseURL(url, getenv)
	if err != nil {
		return nil, err
	}
	o.Logger = log
	return etcd.Open(ctx, o)
}
