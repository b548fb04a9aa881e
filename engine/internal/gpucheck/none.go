//go:build !cgo || !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "gpucheck: built without cgo or not for Linux: there is no GPU memory")
	os.Exit(2)
}
