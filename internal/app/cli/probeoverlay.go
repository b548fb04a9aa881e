package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/text"
	"github.com/topoctl/topoctl/probe"
)

// measured are the flags by which a command starts from measured rates.
type measured struct {
	file, host string
	report     *probe.Report
	found      string // what the report calls this host
}

func (m *measured) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&m.file, "probe", "", "start from the rates in `FILE`, a report of \"topoctl probe\"")
	cmd.Flags().StringVar(&m.host, "probe-host", "", "with --probe: this host is `NAME` in the report (default: the one that is built like it, and has its name)")
	offer(cmd, map[string]completer{"probe-host": words()})
}

func (m *measured) check(cmd *cobra.Command) error {
	if err := notEmpty(cmd, "probe", "probe-host"); err != nil {
		return err
	}
	if cmd.Flags().Changed("probe-host") && m.file == "" {
		return errors.New("--probe-host has no effect without --probe")
	}
	return nil
}

// overlay gives the measured rates of a host's links, nil without --probe.
func (m *measured) overlay(in *input, t *topo.Topology) (topo.Overlay, error) {
	if m.file == "" {
		return nil, nil
	}
	if m.report == nil {
		r, err := in.readReport(m.file)
		if err != nil {
			return nil, fmt.Errorf("--probe: %w", err)
		}
		m.report = r
	}
	name, err := m.find(t)
	if err != nil {
		return nil, err
	}
	m.found = name
	rates := m.report.Overlay(name)
	if len(rates) == 0 && !in.globals.quiet {
		fmt.Fprintln(in.streams.Err, "topoctl: warning: "+text.Printable(fmt.Sprintf("--probe %s: nothing in it tells what a link of %s carries: the expected rates stay", m.file, name)))
	}
	return rates, nil
}

// start gives the rates that choices start from, nil without --probe.
func (m *measured) start(in *input, t *topo.Topology) (topo.Overlay, error) {
	rates, err := m.overlay(in, t)
	if rates == nil {
		return nil, err
	}
	return probe.Level(rates, t), nil
}

// ofPeer gives the measured rates of another host's links, nil where the report does
// not know it.
func (m *measured) ofPeer(t *topo.Topology) topo.Overlay {
	if m.report == nil {
		return nil
	}
	other := measured{file: m.file, report: m.report}
	name, err := other.find(t)
	if err != nil || name == m.found {
		return nil
	}
	return probe.Level(m.report.Overlay(name), t)
}

// find is what the report calls a host.
func (m *measured) find(t *topo.Topology) (string, error) {
	print := t.Fingerprint()
	var alike, all []string
	for i := range m.report.Hosts {
		h := &m.report.Hosts[i]
		all = append(all, h.Name)
		switch {
		case h.Fingerprint != print:
			if h.Name == m.host {
				return "", withHint(fmt.Errorf("--probe-host %s: it is built otherwise than this host", m.host), "was a card or processor changed since? \"topoctl probe\" measures anew")
			}
		case h.Name == m.host || m.host == "" && h.Name == t.Host.Name:
			return h.Name, nil
		default:
			alike = append(alike, h.Name)
		}
	}
	switch {
	case m.host != "":
		return "", fmt.Errorf("--probe-host %s: the report knows %s", m.host, text.List(all, 8))
	case len(alike) == 1:
		return alike[0], nil
	case len(alike) > 1:
		return "", withHint(fmt.Errorf("--probe %s: several of its hosts are built like this one: %s", m.file, text.List(alike, 8)), "--probe-host NAME says which it is")
	}
	return "", withHint(fmt.Errorf("--probe %s: it does not know this host: it measured %s", m.file, strings.TrimSpace(text.List(all, 8))),
		"measure this host with \"topoctl probe local --report FILE\", or as one of \"topoctl probe fabric\"")
}
