// Manual writes topoctl's pages of the manual: manual DIRECTORY VERSION DATE, the date in seconds since 1970.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/topoctl/topoctl/cmd/topoctl/internal/cli"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "manual:", err)
		os.Exit(2)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("want DIRECTORY VERSION DATE, have %q", args)
	}
	seconds, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return err
	}
	for name, page := range cli.Manual(args[1], time.Unix(seconds, 0)) {
		if err := os.WriteFile(filepath.Join(args[0], name), page, 0o644); err != nil {
			return err
		}
	}
	return nil
}
