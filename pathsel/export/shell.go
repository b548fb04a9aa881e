package export

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/internal/text"
)

// setting is one variable and why it has its value; without a value it is left
// out, and why says so.
type setting struct {
	name, value string
	why         []string
	ok          bool
	// local is a variable of the shell, for a command line, and not exported.
	local bool
}

// settings are the variables of all ranks, or of one.
type settings []setting

func (s *settings) set(name, value string, why ...string) {
	*s = append(*s, setting{name: name, value: value, why: why, ok: true})
}

func (s *settings) leaveOut(name, why string) {
	*s = append(*s, setting{name: name, why: []string{why}})
}

// rankVariables are what launchers call the local rank: torchrun, Open MPI,
// Slurm, Intel MPI and MPICH.
var rankVariables = []string{"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "MPI_LOCALRANKID"}

// script writes a text that POSIX shells can source. Nothing in it but what is
// written here is ever run: values are quoted, comments are one line.
type script struct{ out bytes.Buffer }

func (s *script) comment(indent, line string) {
	s.out.WriteString(indent + "# " + text.Printable(line) + "\n")
}

// settings writes variables with their reasons.
func (s *script) settings(indent string, list []setting) {
	for i, v := range list {
		if i > 0 {
			s.out.WriteString("\n")
		}
		for _, why := range v.why {
			if !v.ok {
				why = v.name + " is left out: " + why
			}
			s.comment(indent, why)
		}
		switch {
		case v.ok && v.local:
			s.out.WriteString(indent + v.name + "=" + text.ShellQuote(v.value) + "\n")
		case v.ok:
			s.out.WriteString(indent + "export " + v.name + "=" + text.ShellQuote(v.value) + "\n")
		}
	}
}

// ranks writes what differs from rank to rank as one choice by local rank.
func (s *script) ranks(ranks []rank) {
	word := ""
	for i := len(rankVariables) - 1; i >= 0; i-- {
		word = "${" + rankVariables[i] + ":-" + word + "}"
	}
	s.out.WriteString("case \"" + word + "\" in\n")
	for i := range ranks {
		r := &ranks[i]
		s.out.WriteString(strconv.Itoa(r.n) + ")\n")
		s.comment("\t", fmt.Sprintf("rank %d: %s", r.n, r.label()))
		s.settings("\t", r.settings)
		s.out.WriteString("\t;;\n")
	}
	fmt.Fprintf(&s.out, "*)\n\techo 'topoctl: no settings: local rank (%s) is not 0 to %d' >&2\n\t;;\nesac\n",
		strings.Join(rankVariables, ", "), len(ranks)-1)
}
