// topoctl-registry-etcd keeps topoctl's registry in etcd. topoctl runs it where it is given
// --registry etcd://...; it reads requests from standard input (docs/registry.md).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/engine/registry/etcd"
	"github.com/topoctl/topoctl/engine/registry/plugin"
	"github.com/topoctl/topoctl/internal/base/pkgerr"
)

// stampedVersion is what .ci/release stamps by -ldflags "-X main.stampedVersion=...".
var stampedVersion string

const name = "topoctl-registry-etcd"

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

func run(args []string, in io.Reader, out, errs io.Writer) int {
	switch {
	case len(args) == 1 && (args[0] == "version" || args[0] == "--version"):
		fmt.Fprintln(out, name, version())
		return 0
	case len(args) > 0:
		fmt.Fprintf(errs, "%s: topoctl runs this program by itself where it is given --registry etcd://HOST[:PORT][,HOST...][/PREFIX].\n"+
			"It has no flags; ETCDCTL_CACERT, ETCDCTL_CERT, ETCDCTL_KEY and ETCDCTL_USER say how it proves itself to etcd.\n", name)
		if len(args) == 1 && (args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
			return 0
		}
		return 2
	}
	// A signal ends it as the end of its input does: what was published is removed.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(errs, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
	err := plugin.Serve(ctx, in, out, name+" "+version(), func(ctx context.Context, url string, alive func() bool) (registry.Registry, error) {
		o, err := etcd.ParseURL(url, os.Getenv)
		if err != nil {
			return nil, pkgerr.Plain(err)
		}
		o.Alive, o.Logger = alive, log
		return etcd.Open(ctx, o)
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintf(errs, "%s: %s\n", name, pkgerr.Message(err))
		return 1
	}
	return 0
}

// withoutTime leaves the time to the log that the lines go to.
func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey && len(groups) == 0 {
		return slog.Attr{}
	}
	return a
}

// version is what was stamped, else what Go noted, else devel.
func version() string {
	if stampedVersion != "" {
		return stampedVersion
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return strings.TrimPrefix(info.Main.Version, "v")
	}
	return "devel"
}
