package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/registries"
	"github.com/topoctl/topoctl/internal/text"
)

// servesProbes is what the record of an agent says that serves probes.
const servesProbes = "probe"

// Registry is the flag --registry.
type Registry struct{ URL string }

// Add registers the flag.
func (r *Registry) Add(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVar(&r.URL, "registry", "", usage)
	Offer(cmd, map[string]completer{"registry": Words("etcd://")})
}

// Given says whether there is one.
func (r *Registry) Given() bool { return r.URL != "" }

// Check refuses what is no URL of a registry.
func (r *Registry) Check() error {
	if !r.Given() {
		return nil
	}
	if _, rest, ok := strings.Cut(r.URL, "://"); ok {
		hosts, _, _ := strings.Cut(rest, "/")
		if strings.Contains(hosts, "@") { // it is not repeated
			return withHint(errors.New("--registry: a user in the URL"), "others on this host could read the password in the list of processes; for etcd, use ETCDCTL_USER or user-file=FILE")
		}
	}
	if err := registries.Check(r.URL); err != nil {
		return fmt.Errorf("--registry %w", err)
	}
	return nil
}

// Peer reads a value of --peer: an address, and with a registry also a name there.
func (r *Registry) Peer(value string) (string, error) {
	if !r.Given() {
		return Address(value)
	}
	if value == "" || len(value) > 255 || value != text.Printable(value) {
		return "", fmt.Errorf("--peer %.80q: want the name of an engine in the registry, or HOST:PORT", value)
	}
	return value, nil
}

// Open opens the registry; nil without the flag. log is told what goes wrong later; nil: warnings go to
// stderr.
func (r *Registry) Open(ctx context.Context, h *Host, log *slog.Logger) (registry.Registry, error) {
	if !r.Given() {
		return nil, nil
	}
	if log == nil {
		to := h.Streams.Err
		if h.Globals.Quiet {
			to = io.Discard
		}
		log = slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	out, err := registries.Open(ctx, r.URL, log, h.Streams.Getenv)
	if err != nil {
		return nil, fmt.Errorf("--registry %s: %w", r.URL, pkgerr.Plain(err))
	}
	return out, nil
}

// List gives what is in an open registry, within the time limit of the command.
func (r *Registry) List(ctx context.Context, h *Host, names registry.Registry) (registry.Listing, error) {
	lister, ok := names.(registry.Lister)
	if !ok {
		return registry.Listing{}, fmt.Errorf("--registry %s: it cannot list engines", r.URL)
	}
	ctx, stop := h.Waiting(ctx)
	defer stop()
	list, err := lister.List(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: no answer in %s", registry.ErrUnavailable, h.Globals.Timeout)
	}
	if err != nil {
		return registry.Listing{}, advise(fmt.Errorf("--registry %s: %w", r.URL, pkgerr.Plain(err)), peerAdvice...)
	}
	return list, nil
}

// tellBad warns of the records of a registry that cannot be used.
func (in *Host) tellBad(list registry.Listing) {
	for _, bad := range list.Bad {
		in.tell("warning", bad.Key+": a record that cannot be used: "+bad.Error)
	}
}

// finder is a registry by which an engine opens peers, by name or address, and that no one finds it by; nil for nil.
func finder(r registry.Registry) registry.Registry {
	if r == nil {
		return nil
	}
	return registry.ReadOnly(registry.WithAddresses(r))
}

// Hint says what to do where a peer cannot be found by a name of the registry.
func (r *Registry) Hint(err error) error {
	return advise(advise(err, peerAdvice...), advice{registry.ErrNotFound, fmt.Sprintf("\"topoctl peers --registry %s\" lists the names that are there", r.URL)})
}
