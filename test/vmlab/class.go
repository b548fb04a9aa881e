package vmlab

// Class is how near two functions are, in the words of nvidia-smi topo -m and counted in
// switches: PIX at most one, PXB several, PHB the host bridge, NODE another host bridge of
// the NUMA node, SYS another NUMA node.
func (m *Machine) Class(a, b *Function) string {
	switch {
	case a.BDF == b.BDF:
		return "X"
	case a.Node != b.Node:
		return "SYS"
	case a.Bridge != b.Bridge:
		return "NODE"
	}
	common := 0
	for common < min(len(a.Above), len(b.Above)) && a.Above[common] == b.Above[common] {
		common++
	}
	if common == 0 {
		return "PHB"
	}
	// The last common bridge is a switch's upstream port, because a slot has room for one.
	switches := 1
	for _, f := range m.Functions() {
		if f.Kind != Upstream {
			continue
		}
		for _, above := range [][]string{a.Above[common:], b.Above[common:]} {
			for _, bridge := range above {
				if bridge == f.BDF {
					switches++
				}
			}
		}
	}
	if switches > 1 {
		return "PXB"
	}
	return "PIX"
}
