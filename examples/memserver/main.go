// Memserver serves files from memory: it loads them into regions, and clients read
// them by name without involving the server's application.
//
//	memserver -listen 10.0.0.2:7411 -token-file token model.safetensors tokenizer.json
//	memserver -peer 10.0.0.2:7411 -token-file token -get tokenizer.json > tokenizer.json
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/examples/internal/secret"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "memserver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, notes io.Writer) error {
	f := flag.NewFlagSet("memserver", flag.ContinueOnError)
	listen := f.String("listen", "127.0.0.1:7411", "address at which to serve the given files")
	file := f.String("token-file", "", "file with the secret of both sides, at least 16 bytes; by default the environment variable "+secret.Variable)
	peer := f.String("peer", "", "address of the server; run as a client")
	get := f.String("get", "", "file that the client writes to its output; by default it lists the files")
	f.SetOutput(notes)
	if err := f.Parse(args); err != nil {
		return err
	}
	token, err := secret.Read(*file)
	switch {
	case err != nil:
		return err
	case *peer != "":
		return client(ctx, *peer, token, *get, out)
	case f.NArg() == 0:
		f.Usage()
		return errors.New("want the files to serve, or -peer")
	}
	return serve(ctx, *listen, token, f.Args(), notes)
}

// serve keeps the files in memory until ctx ends.
func serve(ctx context.Context, listen string, token []byte, files []string, notes io.Writer) (err error) {
	e, err := engine.New(ctx, engine.Options{Name: "memserver", Listen: []string{listen}, Security: engine.Security{Credentials: trust.Secret(token)}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	for _, file := range files {
		if err := load(e, file, notes); err != nil {
			return err
		}
	}
	fmt.Fprintf(notes, "serving %d files at %s\n", len(files), e.Addrs()[0])
	<-ctx.Done()
	s := e.Stats()
	fmt.Fprintf(notes, "served %d bytes over TCP\n", s.ServedReadBytes)
	return nil
}

// load reads a file into a region named after it.
func load(e *engine.Engine, file string, notes io.Writer) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return fmt.Errorf("%s is empty", file)
	}
	r, err := e.Alloc(info.Size(), engine.RegionOptions{Name: filepath.Base(file), Grant: memory.PeerRead})
	if err != nil {
		return err
	}
	if _, err := io.ReadFull(f, r.Bytes()); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	fmt.Fprintf(notes, "%s: %d bytes\n", r.Name(), r.Size())
	return nil
}

// client writes one of the server's files to out, or lists them.
func client(ctx context.Context, address string, token []byte, name string, out io.Writer) (err error) {
	e, err := engine.New(ctx, engine.Options{Name: "memserver client", Security: engine.Security{Credentials: trust.Secret(token)}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	peer, err := e.Open(ctx, address)
	if err != nil {
		return err
	}
	if name == "" {
		regions, err := peer.Regions(ctx)
		if err != nil {
			return err
		}
		for _, r := range regions {
			fmt.Fprintf(out, "%s\t%d\n", r.Name(), r.Size())
		}
		return nil
	}
	// Region waits for a region that is not there yet, as long as its context: a server has all of its files.
	ctx, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	r, err := peer.Region(ctx, name)
	if err != nil {
		return err
	}
	// A remote region is an io.ReaderAt, so anything that reads files can read it.
	// The buffer is large because each read is a round trip.
	_, err = io.CopyBuffer(struct{ io.Writer }{out}, io.NewSectionReader(r, 0, r.Size()), make([]byte, 4<<20))
	return err
}
