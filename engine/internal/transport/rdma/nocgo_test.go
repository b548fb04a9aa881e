//go:build !cgo

package rdma

import (
	"errors"
	"testing"
)

func TestWithoutCgo(t *testing.T) {
	if _, err := New(Options{}, nil, nil); !errors.Is(err, ErrUnavailable) {
		t.Errorf("without cgo: %v", err)
	}
}
