package bind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/topoctl/topoctl"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/transport/rdma"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/internal/bind/mooncake"
	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/registries"
	"github.com/topoctl/topoctl/pathsel"
)

// Options are the keys of the JSON object that topoctl_open takes; topoctl.h says what they mean.
type Options struct {
	Name           string
	Listen         []string
	Advertise      string
	Files          trust.Files // "token_file", "cert_file", "key_file", "ca_file"
	Insecure       bool
	Registry       string        // URL of a registry, "" for none
	Serves         []string      // what that tells others
	Regions        []NamedRegion // that are there before a peer can open the engine
	Answer         bool          // the application answers calls
	Devices        []string
	Transports     []string
	Protection     string
	Compat         bool   // "compat": ["mooncake"]
	Metadata       string // of Mooncake's
	Topology       string
	LocalRank      int
	LocalSize      int
	DefaultTimeout time.Duration
	GiveUp         time.Duration
	HTTP           string
	Log            string
}

// NamedRegion is memory that the engine allocates, and that peers find by its name.
type NamedRegion struct {
	Name, Location string
	Bytes          uint64
	Grant          int32
}

// What options may be.
const (
	maxOptions     = 1 << 20 // bytes
	maxOptionKeys  = 64
	maxOptionList  = 256
	maxTopology    = 16 << 20 // bytes of a document
	noTopology     = "none"
	liveTopology   = "discover"
	defaultTimeout = 30 * time.Second
)

// ParseOptions reads the JSON object; "" is an empty one. Unknown keys are refused.
func ParseOptions(text string) (Options, error) {
	o := Options{DefaultTimeout: defaultTimeout, Topology: liveTopology, Log: "error"}
	if text == "" {
		return o, nil
	}
	if len(text) > maxOptions {
		return o, fail(Invalid, "options of %d bytes: at most %d are read", len(text), maxOptions)
	}
	r := document.NewReader([]byte(text))
	seen := map[string]bool{}
	err := r.Object(maxOptionKeys, func(key string) error {
		if seen[key] {
			return errors.New("given twice")
		}
		seen[key] = true
		return o.read(r, key)
	})
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return o, fail(Invalid, "options: %w", r.Locate(err))
	}
	return o, o.check()
}

// read takes the value of one key.
func (o *Options) read(r *document.Reader, key string) error {
	if key == "compat" {
		var list []string
		if err := document.ReadList(r, &list, maxOptionList, 0, nil); err != nil {
			return err
		}
		o.Compat = slices.Contains(list, "mooncake")
		if i := slices.IndexFunc(list, func(s string) bool { return s != "mooncake" }); i >= 0 {
			return fmt.Errorf("%.40q: want \"mooncake\"", list[i])
		}
		return nil
	}
	if key == "regions" {
		var list []json.RawMessage
		return document.ReadList(r, &list, maxOptionList, 0, o.readRegion)
	}
	return readField(r, key, []field{
		{"name", &o.Name}, {"listen", &o.Listen}, {"advertise", &o.Advertise}, {"token_file", &o.Files.Token}, {"insecure", &o.Insecure}, {"registry", &o.Registry}, {"serves", &o.Serves}, {"answer", &o.Answer},
		{"cert_file", &o.Files.Certificate}, {"key_file", &o.Files.Key}, {"ca_file", &o.Files.CA},
		{"metadata", &o.Metadata}, {"devices", &o.Devices}, {"transports", &o.Transports}, {"protection", &o.Protection}, {"topology", &o.Topology}, {"local_rank", &o.LocalRank}, {"local_size", &o.LocalSize},
		{"default_timeout_ns", &o.DefaultTimeout}, {"give_up_ns", &o.GiveUp}, {"http", &o.HTTP}, {"log", &o.Log},
	})
}

func (o *Options) readRegion(raw *json.RawMessage) error {
	x := NamedRegion{Grant: 3}
	r := document.NewReader(*raw)
	err := r.Object(maxOptionKeys, func(key string) error {
		return readField(r, key, []field{{"name", &x.Name}, {"bytes", &x.Bytes}, {"location", &x.Location}, {"grant", &x.Grant}})
	})
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", r.At(), err)
	case x.Name == "":
		return errors.New("it has no name")
	}
	o.Regions = append(o.Regions, x)
	return nil
}

// field is a key and where its value goes.
type field struct {
	name string
	to   any
}

func readField(r *document.Reader, key string, fields []field) error {
	i := slices.IndexFunc(fields, func(f field) bool { return f.name == key })
	if i < 0 {
		return fmt.Errorf("unknown key %.40q", key)
	}
	if list, ok := fields[i].to.(*[]string); ok {
		return wanted(new(string), document.ReadList(r, list, maxOptionList, 0, nil))
	}
	return wanted(fields[i].to, r.Value(fields[i].to, 0))
}

// wanted says of a value of another type, in JSON's words, which one the option has.
func wanted(to any, err error) error {
	other, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err
	}
	switch to.(type) {
	case *bool:
		return fmt.Errorf("want true or false, not a %s", other.Value)
	case *string:
		return fmt.Errorf("want a string, not a %s", other.Value)
	}
	return fmt.Errorf("want a whole number, not a %s", other.Value)
}

func (o *Options) check() error {
	guarded := o.Files != (trust.Files{})
	switch {
	case o.DefaultTimeout < 0 || o.GiveUp < 0:
		return fail(Invalid, "options: default_timeout_ns %d, give_up_ns %d: want 0 or more", o.DefaultTimeout, o.GiveUp)
	case o.Insecure && guarded:
		return fail(Invalid, "options: insecure and token_file or ca_file: with a token or certificate nothing is insecure, give one of them")
	}
	switch {
	case o.Compat && guarded:
		return fail(Invalid, "options: compat and token_file or ca_file: stock Mooncake peers show neither token nor certificate, which would protect nothing: leave them out, and listen at loopback or give insecure")
	case !o.Compat && o.Metadata != "":
		return fail(Invalid, "options: metadata is for compat: [\"mooncake\"]")
	case o.Compat && o.Metadata == "":
		o.Metadata = mooncake.P2P
	}
	switch {
	case o.Registry != "" && o.Compat:
		return fail(Invalid, "options: registry and compat: stock Mooncake peers are not in it, give one of them")
	case o.Registry == "" && len(o.Serves) > 0:
		return fail(Invalid, "options: serves is for registry")
	case o.Registry != "":
		if err := registries.Check(o.Registry); err != nil {
			return fail(Invalid, "options: registry: %w", err)
		}
	}
	switch {
	case o.Protection == "":
	case !slices.Contains(protections, o.Protection):
		return fail(Invalid, "options: protection: %.40q: want one of %q", o.Protection, protections)
	case o.Compat && o.Protection != protections[0]:
		return fail(Invalid, "options: compat and protection %q: stock Mooncake peers have none, leave it out", o.Protection)
	}
	for i, t := range o.Transports {
		if !slices.Contains(transports, t) || slices.Contains(o.Transports[:i], t) {
			return fail(Invalid, "options: transports: %.40q: want each of %q at most once", t, transports)
		}
	}
	if _, ok := logLevels[o.Log]; !ok {
		return fail(Invalid, "options: log %.40q: want error, warn, info or debug", o.Log)
	}
	if o.DefaultTimeout == 0 {
		o.DefaultTimeout = defaultTimeout
	}
	return nil
}

// transports are the names of all, in the order of preference.
var transports = []string{"shm", "rdma", "tcp"}

// protections are the levels of protection, the weakest first.
var protections = []string{"open", "headers", "payload", "sealed"}

var logLevels = map[string]slog.Level{"error": slog.LevelError, "warn": slog.LevelWarn, "info": slog.LevelInfo, "debug": slog.LevelDebug}

// engine gives the engine's options.
func (o *Options) engine(ctx context.Context) (engine.Options, error) {
	out := engine.Options{
		Name: o.Name, Listen: o.Listen, Advertise: o.Advertise, Security: engine.Security{Insecure: o.Insecure, Protection: engine.Protection(o.Protection)}, Serves: o.Serves,
		DefaultTimeout: o.DefaultTimeout, GiveUp: o.GiveUp,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: logLevels[o.Log]})),
	}
	out.Ports.LocalRank, out.Ports.LocalSize = o.LocalRank, o.LocalSize
	if o.Files != (trust.Files{}) {
		var err error
		if out.Security.Credentials, err = o.Files.Watch(out.Logger); err != nil {
			return out, fail(Invalid, "options: %w", err)
		}
	}
	var err error
	if out.Ports.Topology, err = o.topology(ctx); err != nil {
		return out, err
	}
	var devices []string // of RDMA
	if len(o.Devices) > 0 {
		if out.Ports.Roles, devices, err = onlyDevices(out.Ports.Topology, o.Devices); err != nil {
			return out, err
		}
	}
	names := o.Transports
	if len(names) == 0 {
		names = transports
	}
	for _, name := range names {
		switch name {
		case "shm":
			out.Transports = append(out.Transports, engine.SHM())
		case "rdma":
			if len(o.Devices) == 0 || len(devices) > 0 {
				out.Transports = append(out.Transports, rdma.Factory(rdma.Options{Devices: devices}))
			}
		case "tcp":
			out.Transports = append(out.Transports, engine.TCP())
		}
	}
	return out, nil
}

// topology is what the engine knows of its host, nil for nothing.
func (o *Options) topology(ctx context.Context) (*topo.Topology, error) {
	switch o.Topology {
	case noTopology:
		return nil, nil
	case liveTopology, "":
		t, err := topoctl.Discover(ctx)
		if err != nil {
			return nil, fail(Failed, "topology: %w", err)
		}
		return t, nil
	}
	info, err := os.Stat(o.Topology)
	if err == nil && info.Size() > maxTopology {
		err = fmt.Errorf("%d bytes: at most %d are read", info.Size(), maxTopology)
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(o.Topology)
	}
	if err != nil {
		return nil, fail(Invalid, "topology: %w", err)
	}
	t, err := topo.Decode(data)
	if err != nil {
		return nil, fail(Invalid, "topology %s: %w", o.Topology, err)
	}
	return t, nil
}

// onlyDevices gives every other NIC the role of those that carry no data, and the names of
// RDMA devices among those that are left.
func onlyDevices(t *topo.Topology, want []string) (map[topo.ID]pathsel.Role, []string, error) {
	if t == nil {
		return nil, nil, fail(Invalid, "devices need a topology: without one no port is known")
	}
	h, err := pathsel.New(t, pathsel.Options{})
	if err != nil {
		return nil, nil, fail(Failed, "topology: %w", err)
	}
	roles := map[topo.ID]pathsel.Role{}
	var devices, known []string
	found := map[string]bool{}
	for _, p := range h.Ports() {
		role := pathsel.RoleDecoy
		for _, name := range []string{p.Device, p.Name, p.Netdev} {
			if name == "" {
				continue
			}
			known = append(known, name)
			if !slices.Contains(want, name) {
				continue
			}
			found[name], role = true, pathsel.RoleData
			if p.Device != "" {
				devices = append(devices, p.Device)
			}
		}
		if roles[p.NIC] != pathsel.RoleData { // a device of several ports
			roles[p.NIC] = role
		}
	}
	slices.Sort(known)
	for _, name := range want {
		if !found[name] {
			return nil, nil, fail(Invalid, "devices: this host has no port %.40q: it has %q", name, slices.Compact(known))
		}
	}
	slices.Sort(devices)
	return roles, slices.Compact(devices), nil
}
