package bind

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/topoctl/topoctl/engine"
)

// The numbers are those of topoctl.h.
func TestStatusesOfTheHeader(t *testing.T) {
	header, err := os.ReadFile("../../cmd/libtopoctl/topoctl.h")
	must(t, err)
	want := map[string]Status{
		"OK": OK, "DONE": Done, "FAILED": Failed, "INVALID": Invalid, "NO_HANDLE": NoHandle, "TIMEOUT": Timeout, "UNSAFE": Unsafe, "NO_PEER": NoPeer,
		"PEER_LOST": PeerLost, "NO_REGION": NoRegion, "CANCELED": Canceled, "EXISTS": Exists, "LIMIT": Limit, "FORKED": Forked, "INTERNAL": Internal, "REFUSED": Refused, "NO_MEMORY": NoMemory,
	}
	enum := regexp.MustCompile(`(?s)typedef enum \{(.*?)\} topoctl_status;`).FindSubmatch(header)
	if enum == nil {
		t.Fatal("the header has no topoctl_status")
	}
	found := regexp.MustCompile(`TOPOCTL_([A-Z_]+) = (-?\d+)`).FindAllSubmatch(enum[1], -1)
	for _, m := range found {
		if n, err := strconv.Atoi(string(m[2])); err != nil || Status(n) != want[string(m[1])] {
			t.Errorf("%s is %s, here %d", m[1], m[2], want[string(m[1])])
		}
	}
	if len(found) != len(want) {
		t.Errorf("the header has %d, here are %d", len(found), len(want))
	}
}

func TestStatusOf(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want Status
	}{
		{nil, OK},
		{errors.New("no one knows"), Failed},
		{fmt.Errorf("%w: %w", context.DeadlineExceeded, engine.ErrUnsafeBuffer), Unsafe},
		{fmt.Errorf("%w: %w", context.DeadlineExceeded, engine.ErrPeerLost), PeerLost},
		{fmt.Errorf("%w: %w", engine.ErrPeerLost, engine.ErrUnreachable), PeerLost},
		{fmt.Errorf("op 1: %w", &engine.OpError{Op: 2, Err: engine.ErrDenied}), NoRegion},
		{fmt.Errorf("more: %w", fail(Exists, "twice: %w", engine.ErrLimit)), Exists},
	} {
		if got := StatusOf(tt.err); got != tt.want {
			t.Errorf("%v: %d, want %d", tt.err, got, tt.want)
		}
	}
}
