package tcp

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/testkit/childtest"
)

// The other process of the benchmarks: this test binary again, told so by the
// environment. It serves a region over the transport and raw sockets beside it,
// and obeys lines of JSON on its standard input.

const peerEnv = "TOPOCTL_TCP_TEST_PEER"

// benchRegion is too large for any cache.
const benchRegion = 256 << 20

func TestMain(m *testing.M) {
	if os.Getenv(peerEnv) != "" {
		if err := servePeer(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "peer:", err)
			os.Exit(1)
		}
		return
	}
	// The runtime opens descriptors of its own with the first socket; the tests count
	// those that are left.
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		l.Close()
	}
	os.Exit(m.Run())
}

type peerCommand struct {
	Accept string // an offer, hex
	Conn   uint64
	CPU    bool
}

type peerAnswer struct {
	Data, Raw string // addresses
	Region    memory.ID
	Offer     string
	CPU       time.Duration
	Err       string
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peerTB lets the helpers of tests run outside of one.
type peerTB struct {
	testing.TB
	cleanup []func()
}

func (p *peerTB) Helper()                   {}
func (p *peerTB) Cleanup(f func())          { p.cleanup = append(p.cleanup, f) }
func (p *peerTB) Fatal(args ...any)         { panic(fmt.Sprint(args...)) }
func (p *peerTB) Error(args ...any)         { panic(fmt.Sprint(args...)) }
func (p *peerTB) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

func servePeer(in io.Reader, out io.Writer) error {
	tb := &peerTB{}
	s := newSide(tb, Options{SpinPolls: envPolls()})
	r := s.region(tb, benchRegion, both, memory.Options{Pages: memory.Huge, Backing: memory.Private})
	raw, err := (&net.ListenConfig{Control: soft}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go serveRaw(raw, bytesOf(r))
	enc := json.NewEncoder(out)
	if err := enc.Encode(peerAnswer{Data: s.listen(tb), Raw: raw.Addr().String(), Region: r.ID()}); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var cmd peerCommand
		if err := json.Unmarshal(lines.Bytes(), &cmd); err != nil {
			return err
		}
		answer := peerAnswer{CPU: cpuTime()}
		if cmd.Accept != "" {
			request, _ := hex.DecodeString(cmd.Accept)
			reply, err := s.Accept(context.Background(), transport.Origin{Session: mySession, Conn: transport.ConnID(cmd.Conn)}, request)
			if err != nil {
				answer.Err = err.Error()
			}
			answer.Offer = hex.EncodeToString(reply)
		}
		if err := enc.Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

func envPolls() int {
	if os.Getenv(peerEnv) == "park" {
		return -1
	}
	return 0
}

// peer is the other process.
type peer struct {
	first peerAnswer
	in    io.WriteCloser
	out   *json.Decoder
}

func startPeer(b testing.TB, mode string) *peer {
	b.Helper()
	child := childtest.Start(b, peerEnv+"="+mode)
	b.Cleanup(func() {
		if err := child.End(); err != nil {
			b.Errorf("peer: %v", err)
		}
	})
	p := &peer{in: child.In, out: json.NewDecoder(child.Out)}
	if err := p.out.Decode(&p.first); err != nil {
		b.Fatal(err)
	}
	return p
}

func (p *peer) ask(cmd peerCommand) (peerAnswer, error) {
	var answer peerAnswer
	line, err := json.Marshal(cmd)
	if err != nil {
		return answer, err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return answer, err
	}
	if err := p.out.Decode(&answer); err != nil {
		return answer, err
	}
	if answer.Err != "" {
		return answer, fmt.Errorf("peer: %s", answer.Err)
	}
	return answer, nil
}

// cpu is what both processes have used.
func (p *peer) cpu(b testing.TB) time.Duration {
	answer, err := p.ask(peerCommand{CPU: true})
	if err != nil {
		b.Fatal(err)
	}
	return answer.CPU + cpuTime()
}

// dial makes a connection of the transport to the peer.
func (p *peer) dial(b testing.TB, a *side, done func(transport.Conn, []transport.Completion)) transport.Conn {
	b.Helper()
	a.dial = plainDial
	id := lastConn.Add(1)
	c, err := a.Dial(context.Background(), transport.Dial{
		Session: mySession, Conn: transport.ConnID(id),
		Remote: transport.Endpoint{Transport: "tcp", Address: p.first.Data},
		Exchange: func(_ context.Context, request []byte) ([]byte, error) {
			answer, err := p.ask(peerCommand{Accept: hex.EncodeToString(request), Conn: id})
			if err != nil {
				return nil, err
			}
			return hex.DecodeString(answer.Offer)
		},
		Events: transport.Events{Done: done, Lost: func(transport.Conn, error) {}},
	})
	if err != nil {
		b.Fatal(err)
	}
	return c
}
