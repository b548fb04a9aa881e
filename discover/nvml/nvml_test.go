package nvml

import (
	"context"
	"errors"
	"testing"

	"github.com/topoctl/topoctl/discover"
)

// A sampler finds the load of GPUs by this.
var _ discover.GPULoadSource = (*Source)(nil)

// Where there is no NVML, the source must say so in a way that is no failure.
func TestAbsent(t *testing.T) {
	_, err := (&Source{path: "/nonexistent/libnvidia-ml.so.1"}).GPUs(context.Background())
	var absent interface{ Absent() bool }
	if !errors.As(err, &absent) || !absent.Absent() {
		t.Fatalf("error %v, want one that says absent", err)
	}
}

func TestLoadAbsent(t *testing.T) {
	s := &Source{path: "/nonexistent/libnvidia-ml.so.1"}
	_, _, err := s.Load(context.Background())
	var absent interface{ Absent() bool }
	if !errors.As(err, &absent) || !absent.Absent() {
		t.Errorf("error %v, want one that says absent", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close after nothing: %v", err)
	}
}
