package sysfs

import (
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// warned says whether some warning has a code and a piece of its line.
func warned(top *topo.Topology, code topo.Code, piece string) bool {
	return slices.ContainsFunc(top.Warnings, func(w topo.Warning) bool {
		return w.Code == code && strings.Contains(w.String(), piece)
	})
}
