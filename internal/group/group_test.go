package group_test

import (
	"fmt"

	"github.com/topoctl/topoctl/internal/group"
)

func ExampleBy() {
	fmt.Println(group.By([]string{"tcp", "rdma", "shm", "cuda"}, func(s string) int { return len(s) }))
	fmt.Println(len(group.By(nil, func(s string) string { return s })))
	// Output:
	// [[tcp shm] [rdma cuda]]
	// 0
}
