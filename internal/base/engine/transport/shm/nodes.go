package shm

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// node is a NUMA node with processors that we may run on.
type node struct {
	location string // "cpu:0"
	cpus     []int
}

// parseCPUs reads a list of numbers as sysfs writes them: "0-3,8". What is none
// is left out.
func parseCPUs(text string) []int {
	const limit = 1 << 16
	var list []int
	for part := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || first < 0 || last >= limit || len(list) > limit {
			continue
		}
		for n := first; n <= last; n++ {
			list = append(list, n)
		}
	}
	return list
}

// readNodes reads which nodes are there, and which of their processors are allowed.
func readNodes(sys fs.FS, allowed func(int) bool) []node {
	online, err := fs.ReadFile(sys, "online")
	if err != nil {
		return nil
	}
	var list []node
	for _, number := range parseCPUs(string(online)) {
		text, err := fs.ReadFile(sys, fmt.Sprintf("node%d/cpulist", number))
		if err != nil {
			continue
		}
		n := node{location: fmt.Sprintf("cpu:%d", number)}
		for _, cpu := range parseCPUs(string(text)) {
			if allowed(cpu) {
				n.cpus = append(n.cpus, cpu)
			}
		}
		if len(n.cpus) > 0 {
			list = append(list, n)
		}
	}
	return list
}
