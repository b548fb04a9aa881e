package cpuset_test

import (
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/internal/cpuset"
)

func ExampleParse() {
	node, err := cpuset.Parse("0-3,8")
	fmt.Println(node, node.Len(), err)
	allowed := cpuset.Of(2, 3, 4)
	fmt.Println(slices.Collect(node.Intersect(allowed).All()))
	// Output:
	// 0-3,8 5 <nil>
	// [2 3]
}

func ExampleSet_Mask() {
	s, _ := cpuset.ParseHwlocMask("0x1,0x0000ffff")
	fmt.Println(s)
	fmt.Println(s.Mask())
	fmt.Println(s.KernelMask(48))
	// Output:
	// 0-15,32
	// 00000001,0000ffff
	// 0001,0000ffff
}
