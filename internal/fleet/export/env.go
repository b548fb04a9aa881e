package export

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/export"
)

// Documents gives the topology of a host of the fleet.
type Documents func(h *fleet.Host) (*topo.Topology, error)

// Env writes settings of an engine that hold for all hosts of a class, as "topoctl export env" does for one. Hosts that need
// others are told: the settings are those of most.
func Env(f *fleet.Fleet, documents Documents, class string, engine export.Engine) (Output, error) {
	var c *fleet.Class
	var known []string
	for i := range f.Classes {
		known = append(known, f.Classes[i].Class)
		if f.Classes[i].Class == class || class == "" && len(f.Classes) == 1 {
			c = &f.Classes[i]
		}
	}
	if c == nil {
		return Output{}, fmt.Errorf("no class %q: the fleet has %s", class, text.List(known, 8))
	}
	var o Output
	type settings struct {
		host   string
		script []byte
	}
	var all []settings
	for i := range f.Hosts {
		h := &f.Hosts[i]
		if h.Class != c.Class {
			continue
		}
		t, err := documents(h)
		if err != nil {
			o.Notes = append(o.Notes, err.Error())
			continue
		}
		host, err := pathsel.New(t, pathsel.Options{})
		if err != nil {
			return o, fmt.Errorf("%s: %w", h.Host, err)
		}
		var script bytes.Buffer
		if err := export.Env(&script, host, export.EnvOptions{For: engine, Visible: export.AllGPUs(t), Rank: -1}); err != nil {
			return o, fmt.Errorf("%s: %w", h.Host, err)
		}
		all = append(all, settings{h.Host, script.Bytes()})
	}
	if len(all) == 0 {
		return o, fmt.Errorf("class %s: no host's topology could be read: %s", c.Class, strings.Join(o.Notes, "; "))
	}
	names := func(list []settings) (out []string) {
		for _, x := range list {
			out = append(out, x.host)
		}
		return out
	}
	groups := largestFirst(all, func(x settings) string { return withoutComments(x.script) })
	for _, same := range groups[1:] {
		o.Notes = append(o.Notes, fmt.Sprintf("not for %s: %s other settings", text.List(names(same), 8), text.Noun(len(same), "it needs", "they need")))
	}
	most := groups[0]
	out := begin("# ", fmt.Sprintf("# For %s of class %s: %s\n", text.Plural(len(most), "host"), c.Class, comment(hostlist(names(most)))), o.Notes)
	out.Write(most[0].script)
	o.Data = out.Bytes()
	return o, nil
}

// largestFirst groups a list, the largest group first.
func largestFirst[T any](list []T, key func(T) string) [][]T {
	groups := group.By(list, key)
	slices.SortStableFunc(groups, func(a, b []T) int { return len(b) - len(a) })
	return groups
}

// withoutComments is a script without its comments, which name the host.
func withoutComments(script []byte) string {
	var out strings.Builder
	for line := range strings.Lines(string(script)) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			out.WriteString(line)
		}
	}
	return out.String()
}
