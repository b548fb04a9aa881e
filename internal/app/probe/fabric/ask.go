package fabric

import (
	"context"
	"errors"
	"fmt"

	"github.com/topoctl/topoctl/engine"
)

// call asks an agent. An agent that is gone, or whose answer is none, takes no part any
// more. Errors do not name the host.
func (a *agent) call(ctx context.Context, r *request) (*answer, error) {
	r.Lease = a.lease
	data, err := encodeRequest(r)
	if err != nil {
		return nil, err
	}
	got, err := a.peer.Call(ctx, data)
	var refused *engine.RemoteError
	switch {
	case errors.As(err, &refused):
		return nil, fmt.Errorf("%s is refused: %w", r.Do, &engine.RemoteError{Text: clip(refused.Text, maxErrorText)})
	case err != nil:
		if gone := a.peer.Err(); gone != nil {
			a.fail(gone)
		}
		return nil, err
	}
	var out answer
	err = decode(got, maxAnswerEntries, &out)
	switch {
	case err != nil:
		err = fmt.Errorf("%s: an answer that is none: %s", r.Do, clip(err.Error(), maxErrorText))
	case out.Schema != Schema:
		err = fmt.Errorf("%s: an answer of schema %.40q: want %s", r.Do, out.Schema, Schema)
	case out.Epoch != a.peer.Epoch():
		err = fmt.Errorf("%s: an answer of epoch %d, the session is with %d", r.Do, out.Epoch, a.peer.Epoch())
	default:
		return &out, nil
	}
	a.fail(err)
	return nil, err
}
