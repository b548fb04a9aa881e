package explain

import (
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/pathsel"
)

// Groups puts rejected ports together that have one reason.
func Groups(list []pathsel.Candidate) [][]pathsel.Candidate {
	return group.By(list, func(c pathsel.Candidate) string {
		if c.Reason.Code == pathsel.CodeNotForData { // the role and its reason differ
			return string(c.Reason.Code) + c.Reason.Text
		}
		return string(c.Reason.Code)
	})
}

// GroupReason is the reason of a group; where the texts differ, it is that of
// the first.
func GroupReason(group []pathsel.Candidate) string {
	for _, c := range group[1:] {
		if c.Reason.Text != group[0].Reason.Text {
			return group[0].Reason.Text + " (" + group[0].Name + ", and the like)"
		}
	}
	return group[0].Reason.Text
}
