// Package registries opens the registry that a URL names, for the command and the C library.
package registries

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strings"

	"github.com/topoctl/topoctl/engine/registry"
)

var schemeForm = regexp.MustCompile(`^[a-z][a-z0-9+.-]*$`)

// Check refuses what is no URL of a registry that Open knows.
func Check(url string) error {
	scheme, _, ok := strings.Cut(url, "://")
	switch {
	case !ok || !schemeForm.MatchString(scheme):
		return fmt.Errorf("%.40q: want etcd://HOST[:PORT][,HOST...][/PREFIX]", url)
	case scheme != "etcd":
		return fmt.Errorf("%.40s://: only registries in etcd are known, etcd://HOST; a Go program can plug in another by the interface engine/registry.Registry", scheme)
	}
	return nil
}

// Open opens the registry of a URL. It does not wait for its server. log is told what goes wrong later.
func Open(ctx context.Context, url string, log *slog.Logger, getenv func(string) string) (registry.Registry, error) {
	if err := Check(url); err != nil {
		return nil, err
	}
	return openEtcd(ctx, url, log, getenv)
}
