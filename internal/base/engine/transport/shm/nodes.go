package shm

import (
	"fmt"
	"io/fs"

	"github.com/topoctl/topoctl/internal/base/cpuset"
)

// node is a NUMA node with processors that we may run on.
type node struct {
	location string // "cpu:0"
	cpus     cpuset.Set
}

// readNodes reads which nodes are there, and which of their processors are allowed.
func readNodes(sys fs.FS, allowed func(int) bool) []node {
	var list []node
	for number := range readList(sys, "online").All() {
		var cpus []int
		for cpu := range readList(sys, fmt.Sprintf("node%d/cpulist", number)).All() {
			if allowed(cpu) {
				cpus = append(cpus, cpu)
			}
		}
		if len(cpus) > 0 {
			list = append(list, node{location: fmt.Sprintf("cpu:%d", number), cpus: cpuset.Of(cpus...)})
		}
	}
	return list
}

// readList reads a list of numbers as sysfs writes them, empty where there is none.
func readList(sys fs.FS, name string) cpuset.Set {
	text, err := fs.ReadFile(sys, name)
	if err != nil {
		return cpuset.Set{}
	}
	list, err := cpuset.Parse(string(text))
	if err != nil {
		return cpuset.Set{}
	}
	return list
}
