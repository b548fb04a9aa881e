package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/topoctl/topoctl/internal/text"
)

// The exit codes of a monitoring plugin.
// Source: monitoring-plugins.org, development guidelines.
const (
	NagiosOK = iota
	NagiosWarning
	NagiosCritical
	NagiosUnknown
)

// NagiosWords are the words for the exit codes.
var NagiosWords = [...]string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}

// NagiosLine is text as a line of a plugin: what stands after a | is performance data.
func NagiosLine(s string) string { return text.Printable(strings.ReplaceAll(s, "|", "/")) }

// ForNagios turns the failure of a run for a monitoring system into what that understands: UNKNOWN,
// and why.
func ForNagios(in *Host, err error) error {
	if err == nil || in.Format != FormatNagios || Silent(err) || errors.Is(err, context.Canceled) {
		return err
	}
	if err := Write(in.Streams.Out, []byte("TOPOCTL UNKNOWN - "+OneLine("", err)+"\n")); err != nil {
		return err
	}
	return Exit(NagiosUnknown)
}
