package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport/fake"
)

// Errors of batches are one line that names the peer, the lane and the cause once.
func TestErrorTexts(t *testing.T) {
	checkLeaks(t)
	p, n := fakePair(t, 1<<20, fake.Options{})
	p.warm(t)
	check := func(what string, err error, lane bool, want string) {
		t.Helper()
		if err == nil {
			t.Fatalf("%s: no error", what)
		}
		text := strings.ReplaceAll(err.Error(), p.peer.Name(), "PEER")
		if text != want && !strings.HasPrefix(text, strings.TrimSuffix(want, "...")) || strings.Contains(text, "\n") || strings.Count(text, "PEER") != 1 && what != "lost" {
			t.Errorf("%s:\n%s\nwant\n%s", what, text, want)
		}
		var of *LaneError
		if errors.As(err, &of) != lane || lane && (of.Lane != "fake" || of.Peer != p.peer.Name()) {
			t.Errorf("%s: lane error %+v", what, of)
		}
	}
	write := func(ctx context.Context) *Batch {
		t.Helper()
		b := p.submit(t, ctx, []Op{WriteOp(p.mine.Span(0, 0), p.to.At(0)), WriteOp(p.mine.Span(0, 5000), p.to.At(0))}, SubmitOptions{})
		return b
	}
	end := func(b *Batch) error { <-b.Done(); return b.Err() }
	conn := func() *fake.Conn { return n.of("client", "fake").Conns()[0] }

	stallAll(n.of("client", "fake"), true)
	b := write(testContext(t))
	b.Cancel()
	check("cancelled", end(b), false, `engine: peer "PEER": cancelled`)

	// The lane dies and cannot be dialled again.
	p.warm(t)
	n.Refuse(errors.New("the cable is out"))
	conn().Kill(errors.New("link lost"))
	var err error
	for far := time.Second; far < within && !errors.As(err, new(*LaneError)); far *= 4 { // until a dial has failed in that time
		b, _ = p.submitBefore(t, far, []Op{WriteOp(p.mine.Span(0, 5000), p.to.At(0))}, SubmitOptions{})
		err = end(b)
	}
	check("deadline", err, true, `engine: peer "PEER": deadline exceeded with 0 of 5000 bytes in place; lane fake: ...`)
	n.Refuse(nil)

	// What is refused names the op as it was given: the first one moves nothing.
	p.warm(t)
	closed := p.to.t.ID
	p.to.t.ID, p.to.keyed.Load().ID = 9999, 9999
	check("refused", end(write(testContext(t))), true, `engine: peer "PEER": op 1: lane fake: ...`)
	p.to.t.ID, p.to.keyed.Load().ID = closed, closed

	must(t, p.server.Close())
	<-p.peer.Done() // by its goodbye, or because its address refuses connections, which names that address
	check("lost", p.peer.Write(testContext(t), p.mine.Span(0, 1), p.to.At(0)), false, `engine: peer "PEER": peer is lost: ...`)
}
