package preset

import (
	"fmt"
	"math"
	"strings"

	"github.com/topoctl/topoctl/internal/kv/serve"
	"github.com/topoctl/topoctl/pathsel"
)

// The reports' tables: long prompts at 2 requests/s, short ones at 2 to 8; and a later version
// with tensor parallelism.
const (
	a10Long  = "mooncake-a10-v0.1.01"
	a10Short = "mooncake-a10-v0.1.02"
	a10TP    = "mooncake-a10-v0.2.01"
	a10Rate  = "mooncake-a10-v0.2.02"
)

// a10Way is a way that the caches took, with the names it has in the tables of both versions.
type a10Way struct {
	name, about, v1, v2 string
	nics                int
	transport           pathsel.Transport
	software            *Software
}

// The early engine copies caches through host memory, in pages. What of the time to the first
// token is neither prefill nor the first step of decode is fitted where requests hardly meet.
var (
	a10RDMACopy = &Software{What: "copying and handing over each page of a layer, RDMA", PieceNS: 43_300,
		Table: a10Short, Key: "2,MooncakeTransferEngine with RDMA backend", Metric: TTFTMedian}
	a10TCPCopy = &Software{What: "copying and handing over each page of a layer, TCP", PieceNS: 56_800,
		Table: a10Short, Key: "2,MooncakeTransferEngine with TCP backend", Metric: TTFTMedian}
)

var a10Ways = []a10Way{
	{"tcp", "over TCP", "MooncakeTransferEngine with TCP backend", "TCP", 1, pathsel.TCP, a10TCPCopy},
	{"1nic", "over RDMA with one NIC", "MooncakeTransferEngine with RDMA backend", "1", 1, pathsel.RDMA, a10RDMACopy},
	{"2nic", "over RDMA with two NICs", "MooncakeTransferEngine with 2 RDMA NIC devices", "2", 2, pathsel.RDMA, a10RDMACopy},
}

func a10Presets() []*Preset {
	var out []*Preset
	for _, w := range a10Ways {
		p := a10Split("a10-qwen2.5-7b-"+w.name, w, 1)
		p.addRow(a10Row(a10Long, w.v1, 2, 1012))
		for _, qps := range []int{2, 4, 6, 8} {
			p.addRow(a10Row(a10Short, fmt.Sprintf("%d,%s", qps, w.v1), qps, 245))
		}
		out = append(out, p)
	}
	for _, b := range []struct {
		name, about, key string
		chunked          bool
	}{
		{"base", "not disaggregated", "Non-disaggregated", false},
		{"base-chunked", "not disaggregated, chunked prefill", "Non-disaggregated with --enable-chunked-prefill", true},
	} {
		p := a10Base("a10-qwen2.5-7b-"+b.name, b.about, b.chunked)
		p.addRow(a10Row(a10Long, b.key, 2, 1012))
		for _, qps := range []int{2, 4, 6, 8} {
			p.addRow(a10Row(a10Short, fmt.Sprintf("%d,%s", qps, b.key), qps, 245))
		}
		out = append(out, p)
	}
	for _, tp := range []int{1, 2, 4} {
		for _, w := range a10Ways {
			p := a10Split(fmt.Sprintf("a10-qwen2.5-7b-v0.2-tp%d-%s", tp, w.name), w, tp)
			p.addRow(a10Row(a10TP, fmt.Sprintf("tp = %d,%s", tp, w.v2), 2, 1010))
			for _, qps := range []int{2, 4, 6, 8} {
				if tp == 4 {
					p.addRow(a10Row(a10Rate, fmt.Sprintf("qps = %d,%s", qps, w.v2), qps, 1010))
				}
			}
			out = append(out, p)
		}
	}
	return out
}

// a10Row is a row of 200 prompts with answers of 6 tokens.
func a10Row(table, key string, qps, tokens int) Row {
	return Row{Table: table, Key: key, Workload: fmt.Sprintf("%s: %d tokens in, 6 out, %d requests/s", table, tokens, qps),
		Input: tokens, Output: 6, Requests: 200, RatePerSec: float64(qps)}
}

// reportOf is the report of a table, the number of the table left out.
func reportOf(table string) string {
	if i := strings.LastIndexByte(table, '.'); i > 0 {
		return table[:i]
	}
	return table
}

const a10Arrivals = "arrivals are those of vLLM's benchmark with its own seed: the runs' durations agree with it"

func a10Split(name string, w a10Way, tp int) *Preset {
	return &Preset{Name: name, About: fmt.Sprintf("Qwen2.5-7B on two A10 hosts, TP%d, one prefills and one decodes, %s", tp, w.about),
		Model: "Qwen2.5-7B", GPU: "A10", Fixture: "a10-2nic", Hosts: 2, Transport: w.transport, NICs: w.nics, Staged: true, Software: w.software,
		Prefill: Instances{1, tp, 1, 16}, Decode: Instances{1, tp, 1, 16},
		Serving: serve.Config{Prefill: serve.Pool{MaxBatchedTokens: 10_000, MaxSequences: 256}, Decode: serve.Pool{MaxBatchedTokens: 10_000, MaxSequences: 256},
			Move: serve.Push, Admit: serve.After, FirstToken: serve.FromDecode, Router: serve.RoundRobin, ReceiveBlocks: true, SendBlocks: true},
		Assumed: []string{"NICs of 100 Gb/s, one on each socket", "the caches are staged in host memory", "a step of the model waits for caches that leave or come, as with vLLM's first connector",
			"batches of up to 10000 tokens of prompts", a10Arrivals}}
}

func a10Base(name, about string, chunked bool) *Preset {
	tokens := 10_000
	if chunked {
		tokens = 512
	}
	return &Preset{Name: name, About: "Qwen2.5-7B on an A10 host, TP1, " + about, Model: "Qwen2.5-7B", GPU: "A10", Fixture: "a10-2nic", Hosts: 1,
		Prefill: Instances{1, 1, 1, 16},
		Serving: serve.Config{Prefill: serve.Pool{MaxBatchedTokens: tokens, MaxSequences: 256, Chunked: chunked}, Router: serve.RoundRobin},
		Assumed: []string{fmt.Sprintf("steps of up to %d tokens of prompts (the default of vLLM at the time)", tokens), a10Arrivals}}
}

// round is to a whole number, at least 1.
func round(x float64) int { return max(1, int(math.Round(x))) }
