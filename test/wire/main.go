// Wire is the Go side of the interop suite: an engine that peers open, or one that opens a peer. The
// other side is wire.py, which was written from docs/wire.md.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/trust"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "wire:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	var files trust.Files
	f := flag.NewFlagSet("wire", flag.ContinueOnError)
	f.StringVar(&files.Token, "tokens", "", "file with a token on each line")
	f.StringVar(&files.Certificate, "cert", "", "file with the certificate")
	f.StringVar(&files.Key, "key", "", "file with its key")
	f.StringVar(&files.CA, "ca", "", "file with the CA")
	protect := f.String("protect", "", "least protection of data")
	open := f.String("open", "", "open the peer at this address, and use its region; by default serve")
	rounds := f.Int("rounds", 1, "how often to use it")
	limit := f.Duration("timeout", 20*time.Second, "how long one use of the region may take")
	if err := f.Parse(args); err != nil {
		return err
	}
	o := engine.Options{
		Name:       "go",
		Security:   engine.Security{Protection: engine.Protection(*protect)},
		Transports: []engine.TransportFactory{engine.TCP()},
		// A relay or an impostor is not given up earlier.
		GiveUp:         3 * time.Second,
		DefaultTimeout: *limit,
		Logger:         slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	if files != (trust.Files{}) {
		credentials, err := files.Watch(o.Logger)
		if err != nil {
			return err
		}
		o.Security.Credentials = credentials
	}
	if *open != "" {
		return client(ctx, o, *open, *rounds, out)
	}
	return serve(ctx, o, in, out)
}

// serve offers two regions until in ends.
func serve(ctx context.Context, o engine.Options, in io.Reader, out io.Writer) (err error) {
	var calls held
	calls.release = make(chan struct{})
	o.Serve.Answer = calls.answer
	e, err := engine.New(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	for name, grant := range map[string]memory.Grant{"both": memory.PeerRead | memory.PeerWrite, "read": memory.PeerRead} {
		r, err := e.Alloc(1<<20, engine.RegionOptions{Name: name, Grant: grant})
		if err != nil {
			return err
		}
		for i, b := 0, r.Bytes(); i < len(b); i++ {
			b[i] = byte(i * 7)
		}
	}
	fmt.Fprintln(out, e.Addrs()[0])
	go func() {
		for n := range e.Notifications() {
			fmt.Fprintf(out, "notified by %s: %s\n", n.From.Claimed, n.Payload)
		}
	}()
	_, err = io.Copy(io.Discard, in)
	return err
}

// client reads and writes the region "both" of a peer.
func client(ctx context.Context, o engine.Options, address string, rounds int, out io.Writer) (err error) {
	e, err := engine.New(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	peer, err := e.Open(ctx, address)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "open:", peer.EngineName())
	r, err := peer.Region(ctx, "both")
	if err != nil {
		return err
	}
	for i := range rounds {
		want := bytes.Repeat([]byte("from the Go engine "), 20_000)
		want[0] += byte(i) // each round has bytes of its own at its ends
		want[len(want)-1] += byte(i)
		if _, err := r.WriteAt(want, 1000); err != nil {
			return err
		}
		fmt.Fprintln(out, "written:", len(want))
		got := make([]byte, len(want))
		if _, err := r.ReadAt(got, 1000); err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return errors.New("what was read is not what was written")
		}
		fmt.Fprintln(out, "read:", len(got))
	}
	if err := peer.Notify(ctx, []byte("all is there")); err != nil {
		return err
	}
	answer, err := peer.Call(ctx, []byte("upper case"))
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "answer:", string(answer))
	return peer.Close()
}
