// Hello writes into a peer's memory over every NIC, and says which of them carried it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/topoctl/topoctl"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	// The side that offers memory: mostly another process, on another host.
	there, err := topoctl.NewEngine(ctx, engine.Options{Name: "there"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, there.Close()) }()
	kv, err := there.Alloc(1<<20, engine.RegionOptions{Name: "kv", Grant: memory.PeerWrite})
	if err != nil {
		return err
	}

	// The side that writes.
	here, err := topoctl.NewEngine(ctx, engine.Options{Name: "here"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, here.Close()) }()
	page, err := here.Alloc(1<<20, engine.RegionOptions{})
	if err != nil {
		return err
	}
	copy(page.Bytes(), "over every NIC")
	peer, err := here.Open(ctx, there.Addrs()[0].String())
	if err != nil {
		return err
	}
	remote, err := peer.Region(ctx, "kv")
	if err != nil {
		return err
	}
	ops := []engine.Op{engine.WriteOp(page.Span(0, 1<<20), remote.At(0))}
	batch, err := peer.Submit(ctx, ops, engine.SubmitOptions{})
	if err != nil {
		return err
	}
	if err := batch.Wait(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\n", kv.Bytes()[:14])
	fmt.Fprint(out, batch.Explain().Text())
	return nil
}
