package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/probe/show"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
)

// Measured are the flags by which a command starts from measured rates.
type Measured struct {
	File, host string
	Report     *probe.Report
	Found      string // what the report calls this host
}

// Add registers the flags.
func (m *Measured) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&m.File, "probe", "", "use the measured rates in `FILE`, a report of \"topoctl probe\"")
	cmd.Flags().StringVar(&m.host, "probe-host", "", "with --probe, the `NAME` of this host in the report (default: the host with the same hardware and name)")
	Offer(cmd, map[string]completer{"probe-host": Words[string]()})
}

// Check refuses the name of a host without a report.
func (m *Measured) Check(cmd *cobra.Command) error {
	return checkTogether(cmd, flagRule{"probe-host", needs, "probe", ""})
}

// Overlay gives the measured rates of a host's links, nil without --probe.
func (m *Measured) Overlay(in *Host, t *topo.Topology) (topo.Overlay, error) {
	if m.File == "" {
		return nil, nil
	}
	if m.Report == nil {
		r, err := in.ReadReport(m.File)
		if err != nil {
			return nil, fmt.Errorf("--probe: %w", err)
		}
		m.Report = r
	}
	name, err := m.find(t)
	if err != nil {
		return nil, err
	}
	m.Found = name
	rates := m.Report.Overlay(name)
	if len(rates) == 0 {
		in.tell("warning", fmt.Sprintf("--probe %s: no measured link rates for %s; using the expected rates", m.File, name))
	}
	return rates, nil
}

// Start gives the rates that choices start from, nil without --probe.
func (m *Measured) Start(in *Host, t *topo.Topology) (topo.Overlay, error) {
	rates, err := m.Overlay(in, t)
	if rates == nil {
		return nil, err
	}
	return probe.Level(rates, t), nil
}

// OfPeer gives the measured rates of another host's links, nil where the report does
// not know it.
func (m *Measured) OfPeer(t *topo.Topology) topo.Overlay {
	if m.Report == nil {
		return nil
	}
	other := Measured{File: m.File, Report: m.Report}
	name, err := other.find(t)
	if err != nil || name == m.Found {
		return nil
	}
	return probe.Level(m.Report.Overlay(name), t)
}

// find is what the report calls a host.
func (m *Measured) find(t *topo.Topology) (string, error) {
	print := t.Fingerprint()
	var alike, all []string
	for i := range m.Report.Hosts {
		h := &m.Report.Hosts[i]
		all = append(all, h.Name)
		switch {
		case h.Fingerprint != print:
			if h.Name == m.host {
				return "", withHint(fmt.Errorf("--probe-host %s: its hardware differs from this host's", m.host), "if the hardware has changed since, measure again with \"topoctl probe\"")
			}
		case h.Name == m.host || m.host == "" && h.Name == t.Host.Name:
			return h.Name, nil
		default:
			alike = append(alike, h.Name)
		}
	}
	switch {
	case m.host != "":
		return "", fmt.Errorf("--probe-host %s: not in the report, which has %s", m.host, text.List(all, 8))
	case len(alike) == 1:
		return alike[0], nil
	case len(alike) > 1:
		return "", withHint(fmt.Errorf("--probe %s: several of its hosts have the same hardware as this one: %s", m.File, text.List(alike, 8)), "use --probe-host NAME to select one")
	}
	return "", withHint(fmt.Errorf("--probe %s: this host is not in the report, which has %s", m.File, strings.TrimSpace(text.List(all, 8))),
		"measure this host with \"topoctl probe local --report FILE\" or \"topoctl probe fabric\"")
}

// ReportOptions say how a report is printed for people.
func (in *Host) ReportOptions() show.Options {
	return show.Options{Look: report.Look{Width: in.Streams.Columns(), Color: in.Color(), ASCII: in.Globals.ASCII}, Units: units.System(in.Globals.Units), Wide: in.Format == formatWide}
}

// ReadReport reads a report, or the events of a run.
func (in *Host) ReadReport(name string) (*probe.Report, error) {
	src := in.Streams.In
	switch {
	case name == "-" && in.Streams.InTTY:
		return nil, withHint(errors.New("- reads standard input, which is a terminal"), "pipe a report into it")
	case name == "-":
		name = stdinName
	default:
		file, err := os.Open(name)
		if err != nil {
			return nil, openError(name, err)
		}
		defer file.Close()
		src = file
	}
	r, err := probe.ReadEvents(src)
	switch {
	case errors.Is(err, syscall.EISDIR):
		return nil, fmt.Errorf("%s: %w", name, syscall.EISDIR)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, pkgerr.Plain(err))
	}
	return r, nil
}
