//go:build !cgo || !linux

package cuda

import (
	"errors"
	"testing"
)

func TestUnavailable(t *testing.T) {
	if _, err := Load(""); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
}
