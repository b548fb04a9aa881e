package main

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"

	"github.com/topoctl/topoctl/engine/trust"
)

// held are calls that wait until another one lets them go, so that a test can lose their
// connection before they have an answer.
type held struct {
	ran     atomic.Int64
	release chan struct{}
}

func (h *held) answer(ctx context.Context, _ trust.PeerID, request []byte) ([]byte, error) {
	switch string(request) {
	case "hold":
		n := h.ran.Add(1)
		select {
		case <-h.release:
			return fmt.Appendf(nil, "run %d", n), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case "held":
		return fmt.Append(nil, h.ran.Load()), nil
	case "release":
		close(h.release)
		return nil, nil
	}
	return bytes.ToUpper(request), nil
}
