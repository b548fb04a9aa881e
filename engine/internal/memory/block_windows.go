package memory

import (
	"errors"
	"fmt"
	"syscall"
)

// The program builds for Windows to look at saved hosts. Its engine has no memory there.

func allocate(int64, Options) (*Block, error) {
	return nil, fmt.Errorf("memory for transfers on Windows: %w", errors.ErrUnsupported)
}

func (a area) unmap() error { return nil }

func (a area) hide() error { return nil }

type iovec struct{ Base *byte }

func (*iovec) SetLen(int) {}

// Readv reads nothing.
func (*Vector) Readv(uintptr) (int, syscall.Errno) { return 0, syscall.EWINDOWS }

// Writev writes nothing.
func (*Vector) Writev(uintptr) (int, syscall.Errno) { return 0, syscall.EWINDOWS }
