package fleet

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/text"
)

// Unreached are hosts that were not reached for the same reason.
type Unreached struct {
	Hosts   []string
	Sources []string // of each, as Host.Source
	Reason  string   // names "HOST" where the reasons name a host each
}

// Missing are the names of the hosts that were not reached.
func (f *Fleet) Missing() []string { return hostNames(f.hosts(false)) }

// NoneReached says whether nothing is known of any host.
func (f *Fleet) NoneReached() bool {
	return !slices.ContainsFunc(f.Hosts, func(h Host) bool { return h.Known() })
}

// Unreached are the hosts that were not reached, by reason, the commonest first.
func (f *Fleet) Unreached() []Unreached {
	var out []Unreached
	for _, same := range group.By(f.hosts(false), (*Host).anyReason) {
		x := Unreached{Reason: cmp.Or(same[0].Reason, noReason)}
		for _, h := range same {
			x.Hosts, x.Sources = append(x.Hosts, h.Host), append(x.Sources, h.Source)
			if h.Reason != same[0].Reason {
				x.Reason = h.anyReason()
			}
		}
		out = append(out, x)
	}
	slices.SortStableFunc(out, func(a, b Unreached) int { return len(b.Hosts) - len(a.Hosts) })
	return out
}

const noReason = "no reason is known"

var reasonWord = regexp.MustCompile(`[^\s,;()"']+`)

// anyReason is the reason why a host was not reached, with "HOST" in place of its names and addresses, so that the same
// message of ssh about two hosts counts as one reason.
func (h *Host) anyReason() string {
	own := map[string]bool{h.Host: true}
	if at := strings.Fields(h.Source); len(at) > 0 {
		_, address, found := strings.Cut(at[len(at)-1], "://")
		if !found {
			address = at[len(at)-1]
		}
		own[address] = true
	}
	return reasonWord.ReplaceAllStringFunc(h.Reason, func(w string) string {
		bare := strings.TrimRight(w, ":.")
		if own[bare] || isAddress(bare) {
			return "HOST" + w[len(bare):]
		}
		return w
	})
}

func isAddress(s string) bool {
	_, port := netip.ParseAddrPort(s)
	_, alone := netip.ParseAddr(s)
	return port == nil || alone == nil
}

// SayUnreached says which hosts were not reached and, if it is for one reason, why; "" if all were.
func (f *Fleet) SayUnreached() string {
	missing := f.Missing()
	switch {
	case len(missing) == 0:
		return ""
	case len(missing) < len(f.Hosts):
		s := fmt.Sprintf("%s not reached: %s", were(len(missing), "host"), text.List(missing, mostNames))
		if len(f.Unreached()) == 1 {
			s += ": " + f.WhyUnreached()
		}
		return s
	case len(missing) == 1:
		return missing[0] + " was not reached: " + f.WhyUnreached()
	}
	return fmt.Sprintf("None of %s was reached: %s", text.Plural(len(missing), "host"), f.WhyUnreached())
}

// WhyUnreached is the commonest reason, short, and how many others there are; "" if all hosts were reached.
func (f *Fleet) WhyUnreached() string {
	list := f.Unreached()
	if len(list) == 0 {
		return ""
	}
	const width = 72
	why := text.Cut(list[0].Reason, width, text.Dots)
	if n := len(list) - 1; n > 0 {
		why += fmt.Sprintf(" (%s), and %s", text.Plural(len(list[0].Hosts), "host"), text.Plural(n, "other reason"))
	}
	return why
}
