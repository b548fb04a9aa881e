package kv

// ConversationRequests is how many requests Mooncake's conversation trace has.
const ConversationRequests = 12_031

// conversationSpanNS is how long it lasts.
const conversationSpanNS = 3_537_000_000_000

// ConversationTickNS is its clock: requests come at multiples of 3 s.
const ConversationTickNS = 3_000_000_000

// Percentiles of the trace, read off the published file.
var (
	conversationInput = []point{{0, 891}, {0.05, 901}, {0.1, 964}, {0.15, 1261}, {0.2, 1662}, {0.25, 2306}, {0.3, 3263}, {0.35, 4251},
		{0.4, 4993}, {0.45, 5870}, {0.5, 6909}, {0.55, 8187}, {0.6, 9570}, {0.65, 11238}, {0.7, 13196}, {0.75, 15367}, {0.8, 17869},
		{0.85, 21464}, {0.9, 27367}, {0.925, 31519}, {0.95, 39550}, {0.96, 44613}, {0.97, 52215}, {0.98, 66449}, {0.985, 73850},
		{0.99, 85400}, {0.995, 100810}, {0.999, 121301}, {1, 126195}}
	conversationOutput = []point{{0, 1}, {0.05, 10}, {0.1, 24}, {0.15, 46}, {0.2, 100}, {0.25, 156}, {0.3, 213}, {0.35, 256},
		{0.4, 291}, {0.45, 322}, {0.5, 350}, {0.55, 375}, {0.6, 399}, {0.65, 423}, {0.7, 447}, {0.75, 472}, {0.8, 504},
		{0.85, 543}, {0.9, 597}, {0.925, 639}, {0.95, 698}, {0.96, 738}, {0.97, 800}, {0.98, 892}, {0.985, 967},
		{0.99, 1119}, {0.995, 1568}, {0.999, 2000}, {1, 2000}}
)

// Conversation is a workload with the statistics of Mooncake's conversation trace (FAST 2025):
// its rate (12,031 requests in 3537 s), and the percentiles of its prompts and answers,
// which give its means (12,035 and 343 tokens) within 1 %. With n requests it lasts n/rate.
//
// Arrivals are Poisson; with tickNS ConversationTickNS they come in bunches of about ten
// every 3 s as in the published file, with 0 one by one. Lengths of prompts and answers are
// independent (correlation in the trace: 0.07). Not met: how requests share prefixes (37 % of
// the trace's prompt tokens with an unlimited cache) and the rate that grows by a quarter over
// the hour: Requests have no Blocks.
func Conversation(n int, seed uint64, tickNS int64) Spec {
	return Spec{Requests: n, Seed: seed,
		Arrivals: Arrivals{RatePerSec: ConversationRequests * 1e9 / conversationSpanNS, TickNS: tickNS},
		Input:    quantiles{"conversation (median 6909)", conversationInput},
		Output:   quantiles{"conversation (median 350)", conversationOutput}}
}
