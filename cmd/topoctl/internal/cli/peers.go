package cli

// The command that lists the engines of a registry.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
)

// The names and major versions of what peers prints: a document, and with --watch lines.
const (
	peersSchema = "topoctl.peers/v1"
	schemaEvent = "topoctl.peer-event/v1"
)

type peersOptions struct {
	*Host
	registry Registry
	watch    bool
	limit    time.Duration
}

func newPeersCmd(f *Env) *cobra.Command {
	opts := &peersOptions{Host: f.Host()}
	cmd := newCommand(opts, "peers", "List the engines in a registry")
	opts.registry.Add(cmd, "the registry at `URL`, such as etcd://HOST/PREFIX")
	cmd.Flags().BoolVar(&opts.watch, "watch", false, "then print changes as they happen")
	timeFlag(cmd, &opts.limit, "duration", 0, 0, unbounded, "with --watch, stop after `TIME`")
	Uses(cmd, "timeout", "quiet")
	Lasts(cmd)
	Formats(cmd, formatTable, formatJSON, formatJSONL, formatName)
	return cmd
}

func (o *peersOptions) parse(cmd *cobra.Command, _ []string) error {
	if err := o.registry.Check(); err != nil {
		return err
	}
	if !o.registry.Given() {
		return withHint(errors.New("--registry is required"), "--registry etcd://HOST/PREFIX; without a registry, engines are found by their addresses, and there is no list")
	}
	return checkTogether(cmd, flagRule{"duration output=jsonl", needs, "watch", ""}, flagRule{"watch", excludes, "output=name", ""})
}

// peersDocument is what peers -o json prints.
type peersDocument struct {
	Schema   string               `json:"schema"`
	Registry string               `json:"registry"`
	Peers    []peersEntry         `json:"peers"` // by name
	Bad      []registry.BadRecord `json:"bad"`
}

// peersEntry is an engine of a registry.
type peersEntry struct {
	Name      string           `json:"name"`
	Epoch     uint64           `json:"epoch,string"`
	Since     time.Time        `json:"since"`  // by its own clock
	AgeNS     int64            `json:"age_ns"` // since then, by this host's clock; not below 0
	Addresses []netip.AddrPort `json:"addresses"`
	// Fingerprint is that of its topology, null if unknown.
	Fingerprint *string  `json:"fingerprint"`
	Serves      []string `json:"serves"`
	StaleNS     int64    `json:"stale_ns,omitempty"` // how old this is, where the registry's server is away
}

// peersEvent is a line of peers --watch -o jsonl.
type peersEvent struct {
	Schema string `json:"schema"`
	// At is when it was seen. Event is "present" (it was there at the start), "registered", "restarted"
	// (with another epoch), "changed", "gone" or "bad".
	At    time.Time           `json:"at"`
	Event string              `json:"event"`
	Peer  *peersEntry         `json:"peer,omitempty"`
	Bad   *registry.BadRecord `json:"bad,omitempty"`
}

func peerOf(r *registry.Record, now time.Time) peersEntry {
	p := peersEntry{Name: r.Name, Epoch: r.Epoch, Since: registry.EpochTime(r.Epoch).UTC(), Addresses: r.Addresses, Serves: append([]string{}, r.Serves...), StaleNS: int64(r.Stale)}
	p.AgeNS = max(0, int64(now.Sub(p.Since)))
	if r.Fingerprint != "" {
		p.Fingerprint = &r.Fingerprint
	}
	return p
}

func (o *peersOptions) run(ctx context.Context) error {
	r, err := o.registry.Open(ctx, o.Host, nil)
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // nothing was published
	if o.watch {
		return o.follow(ctx, r)
	}
	list, err := o.registry.List(ctx, o.Host, r)
	if err != nil {
		return err
	}
	if err := o.printList(list); err != nil {
		return err
	}
	if len(list.Bad) > 0 {
		return errBad
	}
	return nil
}

func (o *peersOptions) printList(list registry.Listing) error {
	d := peersDocument{Schema: peersSchema, Registry: o.registry.URL, Peers: []peersEntry{}, Bad: append([]registry.BadRecord{}, list.Bad...)}
	now := o.Now()
	var names strings.Builder
	for i := range list.Records {
		p := peerOf(&list.Records[i], now)
		d.Peers = append(d.Peers, p)
		names.WriteString(text.Printable(p.Name) + "\n")
	}
	if o.Format == formatName {
		return Write(o.Streams.Out, []byte(names.String()))
	}
	return o.printAnswer(d, func() string { return d.text(o.Streams) })
}

func (d *peersDocument) text(s Streams) string {
	var b strings.Builder
	b.WriteString(text.Plural(len(d.Peers), "engine") + " in " + d.Registry)
	if len(d.Bad) > 0 {
		b.WriteString(", and " + text.Plural(len(d.Bad), "record") + " that cannot be used")
	}
	b.WriteString(".\n")
	if len(d.Peers) > 0 {
		t := &report.Table{Head: []string{"NAME", "AGE", "ADDRESSES", "FINGERPRINT", "EPOCH", "SERVES"}}
		for i := range d.Peers {
			p := &d.Peers[i]
			t.Add(p.Name, peerAge(time.Duration(p.AgeNS)), peerAddresses(p.Addresses), shortName(p.Fingerprint), fmt.Sprint(p.Epoch), strings.Join(p.Serves, " "))
		}
		b.WriteString("\n" + (&report.Look{Width: s.Width}).Table(t))
	}
	for _, bad := range d.Bad {
		fmt.Fprintf(&b, "\nbad  %s: %s\n", text.Printable(bad.Key), text.Printable(bad.Error))
	}
	return b.String()
}

// peerAge is a duration as kubectl has it: the two largest units.
func peerAge(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

func peerAddresses(list []netip.AddrPort) string {
	const most = 4
	var out []string
	for _, a := range list {
		out = append(out, a.String())
	}
	return text.List(out, most)
}

// shortName is enough of a fingerprint to tell hosts apart.
func shortName(fingerprint *string) string {
	if fingerprint == nil {
		return "-"
	}
	_, digits, ok := strings.Cut(*fingerprint, ":")
	if !ok {
		digits = *fingerprint
	}
	return digits[:min(len(digits), 12)]
}

// follow prints what changes.
func (o *peersOptions) follow(ctx context.Context, r registry.Registry) error {
	lister, ok := r.(registry.Lister)
	if !ok {
		return fmt.Errorf("--registry %s: it cannot list engines", o.registry.URL)
	}
	limited := ctx
	if o.limit > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, o.limit)
		defer cancel()
	}
	var failed error
	limited, stop := context.WithCancel(limited)
	defer stop()
	w := peersWatcher{now: o.Now}
	err := lister.WatchAll(limited, func(l registry.Listing) {
		for _, e := range w.events(l) {
			if failed == nil {
				if failed = o.event(&e); failed != nil {
					stop()
				}
			}
		}
	})
	switch {
	case failed != nil:
		return failed
	case limited.Err() != nil: // stopping it is how it ends
		return nil
	}
	return cmp.Or(ctx.Err(), advise(fmt.Errorf("--registry %s: %w", o.registry.URL, pkgerr.Plain(err)), peerAdvice...))
}

// peersWatcher makes events of listings.
type peersWatcher struct {
	now   func() time.Time
	began bool
	peers map[string]registry.Record
	bad   map[string]string
}

func (w *peersWatcher) events(l registry.Listing) []peersEvent {
	var out []peersEvent
	now := w.now().UTC()
	add := func(event string, r *registry.Record) {
		p := peerOf(r, now)
		out = append(out, peersEvent{Schema: schemaEvent, At: now, Event: event, Peer: &p})
	}
	next := make(map[string]registry.Record, len(l.Records))
	for i := range l.Records {
		r := &l.Records[i]
		next[r.Name] = *r
		before, ok := w.peers[r.Name]
		switch {
		case !w.began:
			add("present", r)
		case !ok:
			add("registered", r)
		case before.Epoch != r.Epoch:
			add("restarted", r)
		case !before.Equal(r):
			add("changed", r)
		}
	}
	var gone []string
	for name := range w.peers {
		if _, ok := next[name]; !ok {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	for _, name := range gone {
		r := w.peers[name]
		add("gone", &r)
	}
	bad := make(map[string]string, len(l.Bad))
	for _, b := range l.Bad {
		bad[b.Key] = b.Error
		if w.bad[b.Key] != b.Error {
			out = append(out, peersEvent{Schema: schemaEvent, At: now, Event: "bad", Bad: &b})
		}
	}
	w.began, w.peers, w.bad = true, next, bad
	return out
}

// event prints one.
func (o *peersOptions) event(e *peersEvent) error {
	if o.Format != formatTable {
		line, err := jsonLine(e)
		if err != nil {
			return err
		}
		return Write(o.Streams.Out, line)
	}
	line := e.At.Local().Format("15:04:05") + "  " + text.Pad(e.Event, len("registered")) + "  "
	if e.Peer != nil {
		line += text.Printable(e.Peer.Name)
		if e.Event != "gone" {
			line += "  at " + peerAddresses(e.Peer.Addresses)
			if len(e.Peer.Serves) > 0 {
				line += "  serves " + text.Printable(strings.Join(e.Peer.Serves, " "))
			}
			line += fmt.Sprintf("  epoch %d", e.Peer.Epoch)
		}
	} else {
		line += text.Printable(e.Bad.Key + ": " + e.Bad.Error)
	}
	return Write(o.Streams.Out, []byte(line+"\n"))
}
