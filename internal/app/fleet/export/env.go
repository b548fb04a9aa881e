package export

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/topoctl/topoctl/internal/app/fleet"
	"github.com/topoctl/topoctl/internal/base/text"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/export"
)

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
	hosts, scripts, order := map[string][]string{}, map[string][]byte{}, []string(nil)
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
		key := settings(script.Bytes())
		if hosts[key] == nil {
			order, scripts[key] = append(order, key), script.Bytes()
		}
		hosts[key] = append(hosts[key], h.Host)
	}
	best := ""
	for _, key := range order {
		if len(hosts[key]) > len(hosts[best]) {
			best = key
		}
	}
	if len(hosts[best]) == 0 {
		return o, fmt.Errorf("class %s: no host's topology could be read: %s", c.Class, strings.Join(o.Notes, "; "))
	}
	for _, key := range order {
		if key != best {
			o.Notes = append(o.Notes, fmt.Sprintf("not for %s: %s other settings", text.List(hosts[key], 8), text.Noun(len(hosts[key]), "it needs", "they need")))
		}
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "# For %s of class %s: %s\n", text.Plural(len(hosts[best]), "host"), c.Class, comment(hostlist(hosts[best])))
	for _, n := range o.Notes {
		fmt.Fprintf(&out, "# %s\n", comment(n))
	}
	out.Write(scripts[best])
	o.Data = out.Bytes()
	return o, nil
}

// settings is a script without its comments, which name the host.
func settings(script []byte) string {
	var out strings.Builder
	for line := range strings.Lines(string(script)) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			out.WriteString(line)
		}
	}
	return "x" + out.String() // "" is no key
}
