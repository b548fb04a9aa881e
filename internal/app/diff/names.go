package diff

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/topoctl/topoctl/discover/topo"
)

// nodeNames names nodes for people, kind by kind; of many it gives the number.
func nodeNames(nodes []Node) string {
	byKind := map[topo.Kind][]string{}
	for _, n := range nodes {
		byKind[n.Kind] = append(byKind[n.Kind], n.Name)
	}
	var out []string
	for _, kind := range kindOrder {
		if list := byKind[kind]; len(list) > 0 {
			parts := drawTogether(list)
			if len(parts) > 3 {
				parts = []string{fmt.Sprintf("%d %s", len(list), kindWords[kind])}
			}
			out = append(out, parts...)
		}
	}
	return strings.Join(out, ", ")
}

var kindWords = map[topo.Kind]string{
	topo.KindPackage: "CPU packages", topo.KindNUMA: "NUMA nodes", topo.KindHostBridge: "root buses", topo.KindSwitch: "PCIe switches",
	topo.KindPCI: "PCI functions", topo.KindGPU: "GPUs", topo.KindNVSwitch: "NVSwitches", topo.KindRDMA: "RDMA devices",
	topo.KindPort: "ports", topo.KindNetdev: "interfaces", topo.KindNVMe: "NVMe controllers", KindLink: "links", KindHost: "hosts",
	KindLocation: "memory locations",
}

// names lists names for people; of many the first are shown.
func names(list []string) string {
	const most = 6
	parts := drawTogether(list)
	if len(parts) > most {
		return fmt.Sprintf("%s, ... %d in all", strings.Join(parts[:most], ", "), len(list))
	}
	return strings.Join(parts, ", ")
}

// drawTogether turns runs of names into one: "mlx5_0..11".
func drawTogether(list []string) []string {
	var parts []string
	for i := 0; i < len(list); {
		end := i + 1
		for end < len(list) && next(list[end-1], list[end]) {
			end++
		}
		if end-i < leastRun {
			end = i + 1
		}
		part := list[i]
		if end > i+1 {
			part = span("", list[i], list[end-1], end-i)
		}
		parts = append(parts, part)
		i = end
	}
	return parts
}

// leastRun is how many devices make a run.
const leastRun = 3

// next says whether b is a name with a's number and one.
func next(a, b string) bool {
	p, m, ok1 := numbered(a)
	q, n, ok2 := numbered(b)
	return ok1 && ok2 && p == q && n == m+1
}

// numbered parts a name from the number at its end. Of an address the last
// digit is its function's.
func numbered(s string) (prefix string, n int, ok bool) {
	prefix = strings.TrimRight(s, "0123456789")
	digits := s[len(prefix):]
	if digits == "" || len(digits) > 9 || len(digits) > 1 && digits[0] == '0' {
		return "", 0, false
	}
	n, err := strconv.Atoi(digits)
	return prefix, n, err == nil
}

// span is a run of names: "mlx5_0..11". Addresses have no order of their own.
func span(attr, first, last string, count int) string {
	if addresses(attr) {
		return first + " and " + strconv.Itoa(count-1) + " more"
	}
	_, n, _ := numbered(last)
	return first + ".." + strconv.Itoa(n)
}

// without lists the words of one list that are not in another, after a prefix.
func without(list, other []string, prefix string) string {
	var out []string
	for _, w := range list {
		if !slices.Contains(other, w) {
			out = append(out, w)
		}
	}
	if len(out) == 0 {
		return ""
	}
	return prefix + names(out)
}

func orNone(s string) string {
	if s == "" {
		return absent
	}
	return s
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// columns sets rows in columns. A cell wider than its limit does not widen the
// column, the last one is as long as it is.
func columns(rows [][]string) string {
	limits := []int{10, 28, 48}
	widths := make([]int, len(limits))
	for _, r := range rows {
		for i := range limits {
			if n := utf8.RuneCountInString(r[i]); n <= limits[i] {
				widths[i] = max(widths[i], n)
			}
		}
	}
	var b strings.Builder
	for _, r := range rows {
		line := ""
		for i, cell := range r {
			line += cell
			if i < len(limits) {
				line += strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(cell))+2)
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}
