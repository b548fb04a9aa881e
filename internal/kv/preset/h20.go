package preset

import (
	"fmt"

	"github.com/topoctl/topoctl/internal/kv/serve"
)

// lengths are the tokens of prompts and answers that a table's title states.
type lengths struct {
	table    string
	isl, osl int
}

// numbered gives three tables of a report: their lengths are 3000:150, 1000:1000, 500:1000.
func numbered(report string, first int) []lengths {
	var out []lengths
	for i, l := range [][2]int{{3000, 150}, {1000, 1000}, {500, 1000}} {
		out = append(out, lengths{fmt.Sprintf("%s.%02d", report, first+i), l[0], l[1]})
	}
	return out
}

const (
	qwen32Report = "h20-qwen3-32b-dynamo-vllm"
	r1Report     = "h20-deepseek-r1-dynamo-vllm"
	// The command lines of both reports: --block-size, --max-num-batched-tokens.
	h20Page, h20Batch = 128, 4096
	perClient         = 10
	coarse            = 16 << 20 // slices: the wire is about 1 % of TTFT here
)

// h20Clients is assumed of all presets of both reports, h20Assumed of the disaggregated ones.
var (
	h20Clients = []string{
		"every answer has the tokens of the table's title; where real ones ended early, the report's E2E and requests/s are of shorter answers",
		fmt.Sprintf("%d requests for each concurrent client: the P99 of TTFT at 128 is that of the first burst", perClient),
	}
	h20Assumed = append([]string{"8 InfiniBand NICs of 400 Gb/s in each host, one for each GPU, all rails joined without blocking"}, h20Clients...)
)

// qwen32Handoff is Dynamo's queue of remote prefills and its message that a cache has arrived: the
// part of TTFT at concurrency 1 with 500 tokens that is neither prefill, wire nor the first step.
var qwen32Handoff = &Software{What: "the hand-over between decode and prefill workers", HandoffNS: 27_500_000,
	Table: qwen32Report + ".03", Key: "1", Metric: TTFTMean}

func qwen32Presets() []*Preset {
	var out []*Preset
	for i, x := range []struct{ n, tp int }{{3, 4}, {6, 2}, {12, 1}} {
		p := &Preset{Name: fmt.Sprintf("h20-qwen3-32b-%dp", x.n), Model: "Qwen3-32B", GPU: "H20", Fixture: "hgx-h20-8nic", Hosts: 2,
			About:   fmt.Sprintf("Qwen3-32B on two H20 hosts, Dynamo with NIXL: %d instances TP%d prefill into one TP4 that decodes", x.n, x.tp),
			Prefill: Instances{x.n, x.tp, 1, h20Page}, Decode: Instances{1, 4, 1, h20Page}, Software: qwen32Handoff, SliceBytes: coarse,
			Serving: serve.Config{Prefill: serve.Pool{MaxBatchedTokens: h20Batch, MaxSequences: 1}, Decode: serve.Pool{MaxBatchedTokens: h20Batch, MaxSequences: 256},
				Move: serve.Push, Admit: serve.Before, FirstToken: serve.FromDecode, Router: serve.LeastTokens},
			Assumed: append([]string{"a prefill worker computes one prompt at a time", "instances fill the hosts in order, the one that decodes last"}, h20Assumed...)}
		p.addH20(numbered(qwen32Report, 1+4*i))
		out = append(out, p)
	}
	for i, x := range []struct {
		name, about string
		tokens      int
	}{{"v0", "vLLM 0.8.4 (V0 engine)", 2048}, {"v1", "vLLM 0.9.0.1 (V1 engine)", 8192}} {
		p := &Preset{Name: "h20-qwen3-32b-" + x.name, About: "Qwen3-32B on two H20 hosts, four instances TP4 that do both, chunked prefill, " + x.about,
			Model: "Qwen3-32B", GPU: "H20", Fixture: "hgx-h20-8nic", Hosts: 2, Prefill: Instances{4, 4, 1, 16},
			Serving: serve.Config{Prefill: serve.Pool{MaxBatchedTokens: x.tokens, MaxSequences: 256, Chunked: true}, Router: serve.RoundRobin},
			Assumed: append([]string{fmt.Sprintf("steps of up to %d tokens and pages of 16 (the version's defaults: the report has no command line)", x.tokens),
				"requests go round the instances in turn"}, h20Clients...),
			Uncompared: map[Metric]string{}}
		for _, m := range []Metric{TPOTMean, TPOTP99, E2EMean, E2EP99, RequestsPerSec, OutputTokensPerSec} {
			p.Uncompared[m] = "the table takes answers that ended early for whole ones"
		}
		p.addH20(numbered(qwen32Report, 13+4*i))
		out = append(out, p)
	}
	return out
}

// r1Copy is fitted to the longer prompts at concurrency 1. One piece after the other on each rank
// is 215 MB/s, so it cannot be the network.
var r1Copy = &Software{What: "moving each page of a layer, one after the other on each rank", PieceNS: 687_000,
	Table: r1Report + ".01", Key: "1", Metric: TTFTMean}

func r1Presets() []*Preset {
	tables := func(first int) []lengths { return numbered(r1Report, first)[:2] }
	split := &Preset{Name: "h20-r1-1p1d-tp16", About: "DeepSeek-R1 on four H20 hosts, Dynamo with NIXL: one instance TP16 prefills, one TP16 decodes",
		Model: "DeepSeek-R1", GPU: "H20", Fixture: "hgx-h20-8nic", Hosts: 4, Prefill: Instances{1, 16, 1, h20Page}, Decode: Instances{1, 16, 1, h20Page}, Software: r1Copy, SliceBytes: coarse,
		Serving: serve.Config{Prefill: serve.Pool{MaxBatchedTokens: h20Batch, MaxSequences: 1}, Decode: serve.Pool{MaxBatchedTokens: h20Batch, MaxSequences: 256},
			Move: serve.Push, Admit: serve.Before, FirstToken: serve.FromDecode, Router: serve.LeastTokens, ReceiveBlocks: true},
		Assumed: append([]string{"a prefill worker computes one prompt at a time",
			"the decode instance begins no step while a cache comes: seen in the rows of 3000 tokens, whose TTFT grows with the concurrency"}, h20Assumed...)}
	split.addH20(tables(1))
	base := &Preset{Name: "h20-r1-tp16", About: "DeepSeek-R1 on two H20 hosts, one instance TP16 that does both, chunked prefill, vLLM 0.9.0.1",
		Model: "DeepSeek-R1", GPU: "H20", Fixture: "hgx-h20-8nic", Hosts: 2, Prefill: Instances{1, 16, 1, h20Page},
		Serving: serve.Config{Prefill: serve.Pool{MaxBatchedTokens: h20Batch, MaxSequences: 256, Chunked: true}, Router: serve.RoundRobin},
		Assumed: h20Clients}
	base.addH20(tables(4))
	return []*Preset{split, base}
}

// addH20 adds the rows of tables by concurrency.
func (p *Preset) addH20(tables []lengths) {
	for _, l := range tables {
		for _, r := range tableOf(l.table).rows {
			c := 0
			_, _ = fmt.Sscan(r.key, &c)
			p.addRow(Row{Table: l.table, Key: r.key, Workload: fmt.Sprintf("%s: %d:%d tokens, concurrency %d", reportOf(l.table), l.isl, l.osl, c),
				Input: l.isl, Output: l.osl, Requests: perClient * c, Concurrency: c})
		}
	}
}
