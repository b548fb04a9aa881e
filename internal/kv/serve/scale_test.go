package serve

import (
	"testing"

	"github.com/topoctl/topoctl/internal/kv"
)

// conversation is two hosts of 8 GPUs and 8 NICs, TP8 on each, and so many requests like
// those of Mooncake's conversation trace.
func conversation(t testing.TB, requests int, model string) Spec {
	w := generate(t, kv.Conversation(requests, 1, 0))
	s := pair(t, "hgx-h100-8nic", model, 8, 50*gb, w)
	s.Serve.Prefill.MaxBatchedTokens, s.Serve.Prefill.Chunked = 8192, true
	s.Serve.Prefill.Compute, s.Serve.Decode.Compute = linear{TokenNS: 15_000, DecodeNS: 20_000_000}, linear{TokenNS: 15_000, DecodeNS: 20_000_000}
	s.Serve.Decode.MaxSequences = 256
	return s
}

// 12,000 requests on a pair of hosts with 8 GPUs each.
func BenchmarkConversation(b *testing.B) {
	for _, model := range []string{"Llama-3.1-8B", "Llama-3.1-70B"} {
		for _, move := range []Move{Push, PushLayers} {
			b.Run(model+"/"+string(move), func(b *testing.B) {
				s := conversation(b, 12_000, model)
				s.Serve.Move, s.Serve.Admit = move, Beside
				for b.Loop() {
					r := run(b, s)
					b.ReportMetric(float64(r.Transfers), "transfers")
					b.ReportMetric(float64(r.SliceBytes), "slice-bytes")
					b.ReportMetric(meanExposed(r)/1e6, "exposed-ms")
				}
			})
		}
	}
}
