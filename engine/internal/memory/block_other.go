//go:build !linux

package memory

import (
	"errors"
	"fmt"
	"os"
)

var errLinux = errors.New("needs Linux")

// Left is not known here.
func Left() (bytes int64, known bool) { return 0, false }

func basePage() int64 { return int64(os.Getpagesize()) }

// readMappings knows nothing: the system does not list its mappings in a file.
func readMappings([]Range) (*mappings, error) { return &mappings{unknown: true}, nil }

func mapFile(int, int64, bool) (*Block, error) {
	return nil, fmt.Errorf("sealed memfd: %w", errLinux)
}

func reopen(int, bool) (int, error) { return -1, errLinux }

func (b *Block) seal(Grant) error { return nil }

func (b *Block) closeFile() error { return nil }
