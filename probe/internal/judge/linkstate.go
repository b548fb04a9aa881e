package judge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
)

// linkErrors are counters that only a faulty link moves. All others may also move under load, or count a
// loss that happened elsewhere: retransmissions are counted at the ends, whichever link on the path lost
// the packet, and even if it was lost for lack of buffers.
var linkErrors = map[string]bool{
	"symbol_error": true, "symbol_errors": true, "link_downed": true, "link_error_recovery": true, "port_rcv_errors": true,
	"port_rcv_remote_physical_errors": true, "local_link_integrity_errors": true, "excessive_buffer_overrun_errors": true,
	"rx_crc_errors": true, "rx_frame_errors": true, "tx_carrier_errors": true,
	"rx_crc_errors_phy": true, "rx_symbol_err_phy": true, "rx_pcs_symbol_err_phy": true, "link_down_events_phy": true,
}

// ofLink says whether a counter counts errors of the link itself; all of PCIe's do.
func ofLink(counter string) bool { return linkErrors[counter] || strings.HasPrefix(counter, "aer_") }

// mostCounters is how many counters one reason names.
const mostCounters = 4

// linkFindings are what the links' own states and counters say.
func (c *judgement) linkFindings(res *probe.Result) []finding {
	var out []finding
	for i := range res.Links {
		st := &res.Links[i]
		if text, code := c.linkTrouble(st); code != "" {
			out = append(out, found(probe.Warn, code, "%s", text))
		}
		hard, soft := counterTexts(st.Counters)
		if names := append(slices.Clone(hard), soft...); len(names) > 0 {
			verdict := probe.Pass
			if len(hard) > 0 {
				verdict = probe.Warn
			}
			out = append(out, found(verdict, probe.CodeErrorsCounted, "%s counted during the measurement: %s", c.linkName(st.Link), text.List(names, mostCounters)))
		}
	}
	return out
}

// counterTexts prints the counters that moved: hard are errors of a link, soft are signs of load or loss.
func counterTexts(counters map[string]int64) (hard, soft []string) {
	for name, n := range counters {
		switch text := fmt.Sprintf("%s +%d", clean(name), n); {
		case n <= 0:
		case ofLink(name):
			hard = append(hard, text)
		default:
			soft = append(soft, text)
		}
	}
	slices.Sort(hard)
	slices.Sort(soft)
	return hard, soft
}

// linkTrouble says whether a link was down, or slower than the topology says.
func (c *judgement) linkTrouble(st *probe.LinkState) (text, code string) {
	l := c.links[st.Link]
	if l == nil || l.BytesPerSec == nil || *l.BytesPerSec <= 0 {
		return "", ""
	}
	if gen, width, ok := pcieState(st.State); ok && l.Kind == topo.LinkPCIe {
		rate := topo.PCIeRate(units.PCIeSpeed(gen), width)
		if float64(rate) < 0.99*float64(*l.BytesPerSec) {
			return fmt.Sprintf("%s ran at %s, %s, while it was measured: the topology says %s", c.linkName(st.Link),
				units.PCIe(units.PCIeSpeed(gen), width), rate, *l.BytesPerSec), probe.CodeLinkDegraded
		}
		return "", ""
	}
	switch strings.ToLower(st.State) {
	case "down", "init", "armed", "initialize", "lowerlayerdown", "dormant":
		return fmt.Sprintf("%s was %s while it was measured", c.linkName(st.Link), st.State), probe.CodeLinkDown
	}
	return "", ""
}

// pcieState reads "gen5 x16".
func pcieState(s string) (gen, width int, ok bool) {
	var rest string
	n, _ := fmt.Sscanf(s, "gen%d x%d%s", &gen, &width, &rest)
	return gen, width, n == 2 && units.PCIeSpeed(gen) > 0 && width >= 1 && width <= 32
}
