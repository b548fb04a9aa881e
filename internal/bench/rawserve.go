package bench

import (
	"bufio"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// RawConfig is what ServeRaw reads first, as a line of JSON.
type RawConfig struct {
	Listen string `json:"listen"` // host:0
	Token  []byte `json:"token"`
	Memory int64  `json:"memory"`
}

// RawReady is what ServeRaw answers, as a line of JSON.
type RawReady struct {
	Address           string `json:"address"`
	CongestionControl string `json:"congestion_control"`
}

// ServeRaw is the other end of the raw sockets that bench compares with, in a
// process of its own. It reads what to do from in and ends when in does.
func ServeRaw(ctx context.Context, in io.Reader, out io.Writer) error {
	input := bufio.NewReaderSize(in, 4096)
	line, err := input.ReadSlice('\n')
	if err != nil {
		return pkgerr.Errorf("bench", "raw end: %w", err)
	}
	var cfg RawConfig
	if err := json.Unmarshal(line, &cfg); err != nil {
		return pkgerr.Errorf("bench", "raw end: %w", err)
	}
	if len(cfg.Token) != rawTokenBytes || cfg.Memory < 1 {
		return pkgerr.New("bench", "raw end: no token or no memory")
	}
	block, err := memory.Alloc(cfg.Memory, memory.Options{})
	if err != nil {
		return err
	}
	defer block.Free() //nolint:errcheck // the process ends
	listen := net.ListenConfig{Control: congestion}
	ln, err := listen.Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return pkgerr.Errorf("bench", "raw end: %w", err)
	}
	ready, err := json.Marshal(RawReady{Address: ln.Addr().String(), CongestionControl: congestionOf(ln.(*net.TCPListener))})
	if err == nil {
		_, err = out.Write(append(ready, '\n'))
	}
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	s := &rawServer{token: cfg.Token, mem: block.Bytes()}
	over := make(chan struct{})
	go func() { // ends with the process: nothing ends a read of standard input
		io.Copy(io.Discard, input) //nolint:errcheck // its end is what is waited for
		close(over)
	}()
	return s.run(ctx, ln.(*net.TCPListener), over)
}

// run serves until ctx or over ends, and waits for what it started.
func (s *rawServer) run(ctx context.Context, ln *net.TCPListener, over <-chan struct{}) error {
	var mu sync.Mutex
	conns := map[*net.TCPConn]bool{}
	var running sync.WaitGroup
	accepted := make(chan struct{})
	running.Go(func() {
		defer close(accepted)
		for {
			c, err := ln.AcceptTCP()
			if err != nil {
				return
			}
			mu.Lock()
			conns[c] = true
			mu.Unlock()
			running.Go(func() {
				s.serve(c) //nolint:errcheck // the other end sees that the stream is gone
				mu.Lock()
				delete(conns, c)
				mu.Unlock()
				c.Close() //nolint:errcheck // served, or failed already
			})
		}
	})
	select {
	case <-ctx.Done():
	case <-over:
	case <-accepted:
	}
	err := ln.Close()
	<-accepted
	mu.Lock()
	for c := range conns {
		c.Close() //nolint:errcheck // this ends what is served
	}
	mu.Unlock()
	running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func sameToken(a, b []byte) bool { return subtle.ConstantTimeCompare(a, b) == 1 }
