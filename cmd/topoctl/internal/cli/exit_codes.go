package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

// The exit codes of a monitoring plugin.
// Source: monitoring-plugins.org, development guidelines.
const (
	nagiosOK = iota
	nagiosWarning
	nagiosCritical
	nagiosUnknown
)

// nagiosWords are the words for the exit codes.
var nagiosWords = [...]string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}

// nagiosCode is the exit code of what was found. unknown says that not all could be looked at.
func nagiosCode(worst doctor.Severity, unknown bool) int {
	switch {
	case worst == doctor.Error:
		return nagiosCritical
	case worst == doctor.Warning:
		return nagiosWarning
	case unknown:
		return nagiosUnknown
	}
	return nagiosOK
}

// nagiosLine is text as a line of a plugin: what stands after a | is performance data.
func nagiosLine(s string) string { return text.Printable(strings.ReplaceAll(s, "|", "/")) }

// forNagios turns the failure of a run for a monitoring system into what that understands: UNKNOWN,
// and why.
func forNagios(in *Host, err error) error {
	if err == nil || in.Format != formatNagios || Silent(err) || errors.Is(err, context.Canceled) {
		return err
	}
	if err := Write(in.Streams.Out, []byte("TOPOCTL UNKNOWN - "+oneLine("", err)+"\n")); err != nil {
		return err
	}
	return Exit(nagiosUnknown)
}

// failNever is the value of --fail-on that lets every host pass.
const failNever doctor.Severity = "never"

// failOnFlag adds --fail-on.
func failOnFlag(cmd *cobra.Command, to *doctor.Severity) {
	wordFlag(cmd, to, "fail-on", doctor.Warning, "exit with code 1 for findings of this `SEVERITY` or higher: info, warning, error or never",
		[]doctor.Severity{doctor.Info, doctor.Warning, doctor.Error, failNever})
}

// failOnItsOwn is the rule of --fail-on: a monitoring system has its own exit codes.
var failOnItsOwn = flagRule{"fail-on", idleWith, "output=nagios", "its exit codes are 0 OK, 1 WARNING, 2 CRITICAL and 3 UNKNOWN"}

// fails says whether the worst finding is one to fail on.
func fails(worst, on doctor.Severity) bool {
	return worst != "" && on != failNever && worst.AtLeast(on)
}
