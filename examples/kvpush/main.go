// Kvpush pushes a request's KV cache from a prefill process to a decode process,
// layer by layer. Each layer is one batch of pages, placed by the page tables of the
// two sides, and a notification that the layer is complete, so that decoding can
// begin while later layers are still in flight. Without flags both roles run in one
// process:
//
//	kvpush -decode 10.0.0.2:7411 -token-file token
//	kvpush -prefill 10.0.0.2:7411 -token-file token
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"

	"github.com/topoctl/topoctl/examples/internal/secret"
)

const (
	pageBytes = 16 << 10
	pool      = 512 // pages that each side has room for in each layer
)

type options struct {
	decode, prefill string
	token           []byte
	layers, pages   int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kvpush:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var o options
	f := flag.NewFlagSet("kvpush", flag.ContinueOnError)
	f.StringVar(&o.decode, "decode", "", "run the decode process, listening at this address")
	f.StringVar(&o.prefill, "prefill", "", "run the prefill process, for the decode process at this address")
	token := f.String("token-file", "", "file with the secret of both sides, at least 16 bytes; by default the environment variable "+secret.Variable)
	f.IntVar(&o.layers, "layers", 32, "layers of the model")
	f.IntVar(&o.pages, "pages", 256, "pages of the request in each layer")
	if err := f.Parse(args); err != nil {
		return err
	}
	if o.layers < 1 || o.pages < 1 || o.pages > pool {
		return fmt.Errorf("want at least one layer and 1 to %d pages", pool)
	}
	var err error
	if o.token, err = secret.Read(*token); err != nil {
		return err
	}
	if o.prefill != "" {
		return prefill(ctx, o, out)
	}
	return decode(ctx, o, out)
}

// place returns the offset of a page of a layer in the region.
func place(layer int, page uint32) int64 { return (int64(layer)*pool + int64(page)) * pageBytes }

// table returns the pages that a side has allocated for the request. Here both sides
// know both tables; a scheduler would send them with the request.
func table(seed uint64, pages int) []uint32 {
	out := make([]uint32, pages)
	for i, page := range rand.New(rand.NewPCG(seed, 0)).Perm(pool)[:pages] {
		out[i] = uint32(page)
	}
	return out
}

const prefillSeed, decodeSeed = 1, 2

// content returns stand-in keys and values for a page.
func content(layer, page int) []byte {
	return bytes.Repeat(binary.BigEndian.AppendUint64(nil, uint64(layer)<<32|uint64(page)), pageBytes/8)
}
