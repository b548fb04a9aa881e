// Pusher moves pages of a KV cache into another process, and goes on when that was killed and started again:
// "pusher receive TOKEN HOST:PORT", and "pusher push TOKEN HOST:PORT REQUESTS". TOKEN is a file with the secret that
// both have. At its end the pusher prints the engine's statistics: which lanes carried how much, and which one failed.
//
// A request is 8 pages. A page goes to slot PAGE % 16 of the receiver's region, and with it the notification "PAGE".
// The call "PAGE" then returns the credit for the slot, once the receiver has consumed the page. Whatever fails, the
// same page is pushed again until then, so that what is still under way changes nothing.
package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/adler32"
	"log"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/topoctl/topoctl"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/trust"
)

const (
	slots     = 16
	pages     = 8                // of a request
	deadline  = 20 * time.Second // of a request, of which each try of a page has 1 s
	pageBytes = 64 << 10         // the page's number (4 bytes), anything, and the Adler-32 of both (4 bytes)
)

func main() {
	if args := os.Args; len(args) == 4 && args[1] == "receive" {
		receive(must(os.ReadFile(args[2])), args[3])
	} else if len(args) == 5 && args[1] == "push" {
		push(must(os.ReadFile(args[2])), args[3], must(strconv.Atoi(args[4])))
	} else {
		log.Fatal("want receive TOKEN HOST:PORT, or push TOKEN HOST:PORT REQUESTS")
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func sum(content []byte) uint32 { return adler32.Checksum(content[:pageBytes-4]) }

func receive(token []byte, address string) {
	var r receiver
	security := engine.Security{Credentials: trust.Secret(token)}
	// Peers find the region as soon as they find the engine.
	prepare := func(e *engine.Engine) (err error) {
		r.engine = e
		r.kv, err = e.Alloc(slots*pageBytes, engine.RegionOptions{Name: "kv", Grant: memory.PeerWrite, OfferAddress: true})
		return err
	}
	serve := engine.Serve{Prepare: prepare, Answer: r.answer}
	must(topoctl.NewEngine(context.Background(), engine.Options{Listen: []string{address}, Security: security, Serve: serve}))
	select {} // until it is killed
}

type receiver struct {
	engine   *engine.Engine
	kv       *engine.Region
	lock     sync.Mutex
	consumed [slots]int // the last page of each slot, from 1 on
}

// answer gives a credit. The notification of a page has come before its call.
func (r *receiver) answer(_ context.Context, _ trust.PeerID, request []byte) ([]byte, error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	for len(r.engine.Notifications()) > 0 {
		page := must(strconv.Atoi(string((<-r.engine.Notifications()).Payload)))
		if page > r.consumed[page%slots] { // else it was pushed twice, and its slot may be the next one's by now
			content := r.kv.Bytes()[page%slots*pageBytes:][:pageBytes]
			right := binary.LittleEndian.Uint32(content) == uint32(page) && sum(content) == binary.LittleEndian.Uint32(content[pageBytes-4:])
			fmt.Printf("page %d right %t goroutines %d\n", page, right, runtime.NumGoroutine())
			r.consumed[page%slots] = page
		}
	}
	if page := must(strconv.Atoi(string(request))); page > r.consumed[page%slots] {
		return nil, fmt.Errorf("page %d did not come", page) // to this receiver: there was another one before
	}
	return nil, nil
}

func push(token []byte, address string, requests int) {
	e := must(topoctl.NewEngine(context.Background(), engine.Options{Security: engine.Security{Credentials: trust.Secret(token)}}))
	local := must(e.Alloc(slots*pageBytes, engine.RegionOptions{}))
	target := e.Target(address)
	var workers sync.WaitGroup
	for first := range slots / pages {
		workers.Go(func() {
			for request := first; request < requests; request += slots / pages {
				var running sync.WaitGroup
				ctx, cancel := context.WithTimeout(context.Background(), deadline)
				for i := range pages {
					running.Go(func() { pushPage(ctx, target, local, request*pages+i+1) })
				}
				running.Wait()
				cancel()
				fmt.Println("request", request, "goroutines", runtime.NumGoroutine())
			}
		})
	}
	workers.Wait()
	fmt.Printf("%s\n", must(json.Marshal(e.Stats())))
	must(e, e.Close())
}

// pushPage returns when the receiver has consumed the page.
func pushPage(ctx context.Context, target *engine.Target, local *engine.Region, page int) {
	at := int64(page % slots * pageBytes)
	content := local.Bytes()[at:][:pageBytes]
	must(rand.Read(content))
	binary.LittleEndian.PutUint32(content, uint32(page))
	binary.LittleEndian.PutUint32(content[pageBytes-4:], sum(content))
	note := strconv.AppendInt(nil, int64(page), 10)
	try := func() error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		peer, err := target.Peer(ctx) // opens it again where it was lost
		if err != nil {
			return err
		}
		kv, err := peer.Region(ctx, "kv")
		if err != nil {
			return err
		}
		batch, err := peer.Submit(ctx, []engine.Op{engine.WriteOp(local.Span(at, pageBytes), kv.At(at))}, engine.SubmitOptions{Notify: note})
		if errors.Is(err, engine.ErrQuarantined) { // an earlier try may still write there
			return errors.Join(err, peer.Fenced(ctx))
		} else if err == nil {
			err = batch.Wait(context.Background()) // ctx bounds the batch, which uses the page until it ends
		}
		if err == nil {
			_, err = peer.Call(ctx, note)
		}
		return err
	}
	for err := try(); err != nil; err = try() {
		if errors.Is(err, engine.ErrInvalid) || ctx.Err() != nil { // it will not be better
			log.Fatalf("page %d: %v", page, err)
		}
		fmt.Fprintln(os.Stderr, "page", page, "again:", err)
	}
}
