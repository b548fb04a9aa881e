package vmlab

// This file finds the virtio ports by which a machine speaks with the lab.

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Open opens the port of that name. Only one process at a time can have it.
func Open(ctx context.Context, name string) (*os.File, error) {
	var file string
	err := Wait(ctx, func() error {
		names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
		if err != nil {
			return err
		}
		for _, n := range names {
			if data, err := os.ReadFile(n); err == nil && strings.TrimSpace(string(data)) == name {
				file = "/dev/" + filepath.Base(filepath.Dir(n))
				return nil
			}
		}
		return fmt.Errorf("no virtio port %s", name)
	})
	if err != nil {
		return nil, fmt.Errorf("port: %w", err)
	}
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("port: %s: %w", name, err)
	}
	return f, nil
}
