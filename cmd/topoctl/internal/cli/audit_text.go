package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/topoctl/topoctl/internal/audit"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
)

// answerColors are the colours of the first line; of the rows, those of their verdicts.
var (
	answerColors  = map[audit.Answer]string{audit.AsPlanned: Good, audit.Unchecked: Caution}
	verdictColors = map[audit.Verdict]string{
		audit.OK: "", audit.NotPlanned: Faint, audit.CouldNotCheck: Caution, audit.Below: Caution,
		audit.Idle: Bad, audit.Above: Bad, audit.TCPFallback: Bad,
	}
)

// auditText is a report for people.
func auditText(r *audit.Report, look Look) string {
	var b strings.Builder
	l := &look
	color, known := answerColors[r.Answer]
	if !known {
		color = Bad
	}
	b.WriteString(l.Wrap("", r.Text, color))
	b.WriteString(l.Wrap("  ", auditBasis(r), Faint))
	if g := r.GPUDirect; g != nil && (g.Without > 0 || g.Channels == 0) {
		b.WriteString(l.Wrap("  ", "next: topoctl doctor no-gdr-path, on that host", ""))
	}
	b.WriteString("\n" + l.Table(auditPorts(r, l)))
	if t := auditInterfaces(r, l); len(t.Rows) > 0 {
		b.WriteString("\n" + l.Wrap("", "TCP beside it", "") + l.Table(t))
	}
	if t := auditProcesses(r, l); len(t.Rows) > 0 {
		b.WriteString("\n" + l.Table(t))
	}
	for i, n := range r.Notes {
		if i == 0 {
			b.WriteString("\n")
		}
		b.WriteString(l.Wrap("note: ", n, ""))
	}
	return b.String()
}

// auditBasis says what the shares were counted by.
func auditBasis(r *audit.Report) string {
	parts := []string{"plan: " + r.Plan + " for " + string(r.Transport)}
	switch {
	case r.Unit == audit.Channels:
		parts = append(parts, "shares of channels in the log, no counters")
	case r.Readings > 0:
		parts = append(parts, fmt.Sprintf("%s of counters over %s", text.Plural(r.Readings, "reading"), time.Duration(r.WindowNS).Round(100*time.Millisecond)))
	}
	parts = append(parts, "tolerance "+partText(r.Tolerance))
	if c := r.Command; c != nil {
		ended := fmt.Sprintf("%s exited with code %d", c.Args[0], c.ExitCode)
		if c.Signal != "" {
			ended = fmt.Sprintf("%s was ended by a signal: %s", c.Args[0], c.Signal)
		}
		parts = append(parts, ended)
	}
	return strings.Join(parts, "; ")
}

func auditPorts(r *audit.Report, l *Look) *report.Table {
	t := answerTable("port", "plan", "share", "sent", "received", "of rate", "verdict", "why")
	if r.Unit == audit.Channels {
		t.Head = []string{"port", "plan", "share", "channels", "verdict", "why"}
	}
	hidden := 0
	for i := range r.Ports {
		p := &r.Ports[i]
		planned := *p.PlannedShare > 0
		if !planned && !l.Verbose && (p.Verdict == audit.NotPlanned || p.Verdict == audit.CouldNotCheck) {
			hidden++
			continue
		}
		plan := "-"
		if planned {
			plan = audit.Percent(*p.PlannedShare)
		}
		cells := []string{p.Name, plan, percentOr(p.CarriedShare, audit.Percent)}
		if r.Unit == audit.Channels {
			cells = append(cells, strconv.Itoa(*p.Channels))
		} else {
			cells = append(cells, amountOf(p.SentBytes, p.SentPackets, r.Unit), amountOf(p.ReceivedBytes, p.ReceivedPackets, r.Unit),
				percentOr(p.Used, func(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) }))
		}
		why := p.Reasons
		if p.Verdict == audit.OK || p.Verdict == audit.Above {
			why = append(usersText(p.Users), why...)
		} else if len(p.Users) > 0 {
			why = append(why[:len(why):len(why)], usersText(p.Users)...)
		}
		t.Rows = append(t.Rows, Row{Cells: append(cells, string(p.Verdict), strings.Join(why, "; ")), Color: verdictColors[p.Verdict]})
	}
	if hidden > 0 {
		t.After = []string{fmt.Sprintf("and %s outside the plan that carried next to nothing (--verbose lists them)", text.Plural(hidden, "port"))}
	}
	return t
}

// usersText names the processes of a port.
func usersText(users []audit.User) []string {
	var names []string
	for _, u := range users {
		name := audit.ProcessName(u.PID, u.Name)
		if u.PID == 0 {
			name = "a process of another user or container, or the kernel"
		}
		what := ""
		if u.QueuePairs > 0 {
			what = ", " + text.Plural(u.QueuePairs, "queue pair")
		}
		if u.TCPBytes > 0 {
			what += ", " + audit.Amount(u.TCPBytes, audit.Bytes) + " by TCP"
		}
		names = append(names, name+what)
	}
	if len(names) > 3 {
		names = append(names[:3], text.Plural(len(names)-3, "more process"))
	}
	return names
}

func auditInterfaces(r *audit.Report, l *Look) *report.Table {
	t := answerTable("interface", "TCP", "verdict", "processes")
	for i := range r.Interfaces {
		n := &r.Interfaces[i]
		if n.Verdict == audit.NotPlanned && !l.Verbose && len(n.Users) == 0 {
			continue
		}
		why := strings.Join(append(usersText(n.Users), n.Reasons...), "; ")
		t.Rows = append(t.Rows, Row{Cells: []string{n.Name, amountOf(n.TCP, n.TCP, r.Unit), string(n.Verdict), why}, Color: verdictColors[n.Verdict]})
	}
	return t
}

// mostProcesses is how many processes are listed without --verbose.
const mostProcesses = 8

func auditProcesses(r *audit.Report, l *Look) *report.Table {
	t := answerTable("process", "variables")
	left := 0
	for _, p := range r.Processes {
		if len(p.Variables) == 0 {
			continue
		}
		if len(t.Rows) == mostProcesses && !l.Verbose {
			left++
			continue
		}
		var set []string
		for _, v := range p.Variables {
			set = append(set, v.Name+"="+text.Cut(v.Value, 120, "..."))
		}
		t.Add(audit.ProcessName(p.PID, p.Name), strings.Join(set, " "))
	}
	if left > 0 {
		t.After = []string{fmt.Sprintf("and %s (--verbose lists them)", text.Plural(left, "process"))}
	}
	return t
}

func percentOr(v *float64, print func(float64) string) string {
	if v == nil {
		return "?"
	}
	return print(*v)
}

func amountOf(bytes, packets *uint64, u audit.Unit) string {
	v := bytes
	if u == audit.Packets {
		v = packets
	}
	if v == nil {
		return "?"
	}
	return audit.Amount(*v, u)
}
