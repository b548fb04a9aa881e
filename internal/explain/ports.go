package explain

import "github.com/topoctl/topoctl/pathsel"

// Groups puts rejected ports together that have one reason.
func Groups(list []pathsel.Candidate) [][]*pathsel.Candidate {
	var out [][]*pathsel.Candidate
	at := map[string]int{}
	for i := range list {
		c := &list[i]
		key := string(c.Reason.Code)
		if c.Reason.Code == pathsel.CodeNotForData { // the role and its reason differ
			key += c.Reason.Text
		}
		k, ok := at[key]
		if !ok {
			k = len(out)
			at[key], out = k, append(out, nil)
		}
		out[k] = append(out[k], c)
	}
	return out
}

// GroupReason is the reason of a group; where the texts differ, it is that of
// the first.
func GroupReason(group []*pathsel.Candidate) string {
	for _, c := range group[1:] {
		if c.Reason.Text != group[0].Reason.Text {
			return group[0].Reason.Text + " (" + group[0].Name + ", and the like)"
		}
	}
	return group[0].Reason.Text
}
