package agent

// This file reads the text that says which peer of an agent may do what.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/probe/measure"
)

// Policy is what the lines of a file say, in their order: the first that names a peer decides, and
// a peer that none names may do nothing. docs/tasks.md describes the form.
type Policy struct{ rules []rule }

// rule is one line.
type rule struct {
	kind, pattern string // cert or token, and the names that are meant; "" is every peer
	may           engine.Permissions
	probe         bool
	targets       measure.Targets
}

// The bounds of a file.
const (
	maxBytes = 1 << 20
	maxRules = 10_000
)

// probeRegions are those that agents allocate for each other's probes.
const probeRegions = "probe-*"

// Parse reads a policy. An error names the line.
func Parse(data []byte) (*Policy, error) {
	p := &Policy{}
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		before, _, _ := strings.Cut(line, "#")
		words := strings.Fields(before)
		if len(words) == 0 {
			continue
		}
		r, err := parseRule(words)
		if err == nil && len(p.rules) == maxRules {
			err = fmt.Errorf("want at most %d", maxRules)
		}
		if err != nil {
			return nil, pkgerr.Errorf("grants", "line %d: %w", number, err)
		}
		p.rules = append(p.rules, r)
	}
	if len(p.rules) == 0 {
		return nil, pkgerr.New("grants", "no lines: a line such as \"* nothing\" is the least")
	}
	return p, nil
}

func parseRule(words []string) (r rule, err error) {
	who, words := words[0], words[1:]
	if who != "*" {
		var ok bool
		r.kind, r.pattern, ok = strings.Cut(who, ":")
		if !ok || r.kind != "cert" && r.kind != "token" || r.pattern == "" {
			return rule{}, fmt.Errorf("%q: want cert:NAME, token:NAME or *", who)
		}
		if err := checkPattern(r.pattern); err != nil {
			return rule{}, err
		}
	}
	if len(words) == 0 {
		return rule{}, fmt.Errorf("%s: it does not say what this peer may do: \"nothing\" is something, too", who)
	}
	for _, word := range words {
		if err := r.allow(word); err != nil {
			return rule{}, err
		}
	}
	if slices.Contains(words, "nothing") && len(words) > 1 {
		return rule{}, fmt.Errorf("%s: nothing, and something", who)
	}
	return r, nil
}

// allow adds what a word of a line allows.
func (r *rule) allow(word string) error {
	what, list, listed := strings.Cut(word, "=")
	names := strings.Split(list, ",")
	grants := map[string]memory.Grant{"read": memory.PeerRead, "write": memory.PeerWrite}
	switch grant := grants[what]; {
	case grant != memory.None && listed:
		for _, name := range names {
			if err := checkPattern(name); err != nil {
				return err
			}
			r.may.Regions = append(r.may.Regions, engine.RegionPermission{Name: name, Grant: grant})
		}
	case word == "topology":
		r.may.Topology = true
	case word == "nothing":
	case what == "probe":
		r.probe, r.may.Calls, r.targets = true, true, measure.AnyTargets
		r.may.Regions = append(r.may.Regions, engine.RegionPermission{Name: probeRegions, Grant: memory.PeerRead | memory.PeerWrite})
		if !listed {
			return nil
		}
		var err error
		if r.targets, err = measure.ParseTargets(names); err != nil {
			return fmt.Errorf("probe: %w", err)
		}
	default:
		return fmt.Errorf("%q: want read=REGIONS, write=REGIONS, topology, probe, probe=TARGETS or nothing", word)
	}
	return nil
}

func checkPattern(p string) error {
	if p == "" {
		return errors.New("an empty name in a list")
	}
	if _, err := path.Match(p, ""); err != nil {
		return fmt.Errorf("%q is not a pattern: a [ without its ], or a \\ at the end", p)
	}
	return nil
}

// ruleFor is the line that decides about a peer, nil without.
func (p *Policy) ruleFor(id trust.PeerID) *rule {
	for i := range p.rules {
		if r := &p.rules[i]; r.names(id) {
			return r
		}
	}
	return nil
}

// names says whether a line is about a peer. What a peer only claims plays no part.
func (r *rule) names(id trust.PeerID) bool {
	switch r.kind {
	case "cert":
		return slices.ContainsFunc(id.Certificate, func(name string) bool { return matches(r.pattern, name) })
	case "token":
		return id.Token != "" && text.Matches(r.pattern, id.Token)
	}
	return true
}

// matches compares a name of a certificate. The case of names of hosts does not count.
func matches(pattern, name string) bool {
	if !strings.Contains(name, "://") {
		pattern, name = strings.ToLower(pattern), strings.ToLower(name)
	}
	return text.Matches(pattern, name)
}

// Permit is what a peer may do; see engine.Security.Permit.
func (p *Policy) Permit(id trust.PeerID) engine.Permissions {
	if r := p.ruleFor(id); r != nil {
		return r.may
	}
	return engine.Permissions{}
}

// Probe says whether a peer may run probes, and where to.
func (p *Policy) Probe(id trust.PeerID) (measure.Targets, bool) {
	if r := p.ruleFor(id); r != nil && r.probe {
		return r.targets, true
	}
	return measure.Targets{}, false
}

// File is a policy that is read again when its file changes. Its methods may be called by many goroutines.
type File struct {
	name string

	mu     sync.Mutex
	data   []byte
	policy *Policy
	broken []byte // what could not be read last, of which the log has told
}

// Open reads a file.
func Open(name string) (*File, error) {
	data, err := read(name)
	if err != nil {
		return nil, err
	}
	p, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, pkgerr.Plain(err))
	}
	return &File{name: name, data: data, policy: p}, nil
}

func read(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, fmt.Errorf("%s: %w", name, path.Err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: want a regular file, which can be read again", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err == nil && len(data) > maxBytes {
		err = fmt.Errorf("%s: larger than %d bytes", name, maxBytes)
	}
	return data, err
}

// Current is the policy of the moment.
func (f *File) Current() *Policy {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.policy
}

// Reload reads the file again, and says whether the policy is another one now. Where the new one cannot be
// read the former stays, and log says why.
func (f *File) Reload(log *slog.Logger) bool {
	data, err := read(f.name)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && bytes.Equal(data, f.data) {
		f.broken = nil
		return false
	}
	var p *Policy
	if err == nil {
		p, err = Parse(data)
	}
	if err != nil {
		if f.broken == nil || !bytes.Equal(f.broken, data) {
			f.broken = append([]byte{}, data...)
			log.Error("the file of grants cannot be read: what it said before still holds", "file", f.name, "error", pkgerr.Plain(err))
		}
		return false
	}
	f.data, f.policy, f.broken = data, p, nil
	log.Info("the file of grants has changed", "file", f.name)
	return true
}
