package nvml

import (
	"context"
	"errors"
	"testing"
)

// Where there is no NVML, the source must say so in a way that is no failure.
func TestAbsent(t *testing.T) {
	_, err := NewFrom("/nonexistent/libnvidia-ml.so.1").GPUs(context.Background())
	var absent interface{ Absent() bool }
	if !errors.As(err, &absent) || !absent.Absent() {
		t.Fatalf("error %v, want one that says absent", err)
	}
}
