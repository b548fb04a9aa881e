package kv_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/internal/kv"
)

func find(t *testing.T, name string) kv.Model {
	t.Helper()
	m, err := kv.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Sizes that others publish for these models: bytes of a token, of a prompt of 4096 tokens.
func TestBytesPerToken(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		name          string
		bytes, in4096 int64
	}{
		{"Qwen2.5-7B", 57_344, 224 * mib}, {"Llama-3.1-8B", 131_072, 512 * mib}, {"Mixtral-8x7B", 131_072, 512 * mib},
		{"Qwen3-32B", 262_144, 1024 * mib}, {"Llama-3.1-70B", 327_680, 1280 * mib}, {"DeepSeek-R1", 70_272, 70_272 * 4096},
	} {
		m := find(t, strings.ToUpper(tt.name))
		if m.Name != tt.name || m.BytesPerToken() != tt.bytes || m.Source == "" {
			t.Errorf("%s: %d bytes for each token, want %d; source %q", m.Name, m.BytesPerToken(), tt.bytes, m.Source)
		}
		r, err := kv.New(m, kv.Side{TP: 1, PageTokens: 16}, kv.Side{TP: 1, PageTokens: 16})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Plan(4096).Bytes; got != tt.in4096 {
			t.Errorf("%s: %d bytes for 4096 tokens, want %d", tt.name, got, tt.in4096)
		}
	}
	if n := len(kv.Models()); n != 6 {
		t.Errorf("%d models", n)
	}
}

func TestUnknownModel(t *testing.T) {
	for name, want := range map[string]string{
		"lama-3.1-8b": `no model "lama-3.1-8b": did you mean Llama-3.1-8B?`,
		"gpt":         `no model "gpt": known are Qwen2.5-7B, Qwen3-32B, Llama-3.1-8B, Llama-3.1-70B, Mixtral-8x7B, DeepSeek-R1`,
		"\x1b[31m":    `no model "\x1b[31m": known are`,
	} {
		if _, err := kv.Find(name); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", name, err, want)
		}
	}
}

func TestSides(t *testing.T) {
	qwen, r1 := find(t, "Qwen2.5-7B"), find(t, "DeepSeek-R1")
	for _, tt := range []struct {
		model kv.Model
		side  kv.Side
		want  kv.Pool
		rank  int64 // bytes of 1000 tokens
	}{
		// 4 heads of 256 bytes; 63 pages of 16 tokens.
		{qwen, kv.Side{TP: 1, PageTokens: 16}, kv.Pool{Heads: 4, HeadBytes: 256, Parts: 2, PageBytes: 32_768}, 63 * 32_768 * 28},
		{qwen, kv.Side{TP: 2, PageTokens: 16}, kv.Pool{Heads: 2, HeadBytes: 256, Parts: 2, PageBytes: 16_384}, 63 * 16_384 * 28},
		{qwen, kv.Side{TP: 8, PageTokens: 64, Order: kv.HND}, kv.Pool{Heads: 1, HeadBytes: 256, Parts: 2, PageBytes: 32_768}, 16 * 32_768 * 28},
		// 576 elements for each token, on each of 16 ranks.
		{r1, kv.Side{TP: 16, PageTokens: 128}, kv.Pool{Heads: 1, HeadBytes: 1152, Parts: 1, PageBytes: 147_456}, 8 * 147_456 * 61},
	} {
		p, err := tt.side.Pool(tt.model)
		if d := cmp.Diff(tt.want, p); d != "" || err != nil {
			t.Errorf("%s %+v: %v %s", tt.model.Name, tt.side, err, d)
		}
		if got, err := tt.side.RankBytes(tt.model, 1000); got != tt.rank || err != nil {
			t.Errorf("%s %+v: %d bytes of a rank, %v, want %d", tt.model.Name, tt.side, got, err, tt.rank)
		}
	}
	bad := qwen
	bad.LatentDim = 4
	huge := qwen
	huge.Layers = 1 << 40
	for want, try := range map[string]func() error{
		"4 KV heads of Qwen2.5-7B cannot be split over TP 3": func() error { _, err := kv.Side{TP: 3, PageTokens: 16}.Pool(qwen); return err },
		"TP 0 with pages of 16 tokens":                       func() error { _, err := kv.Side{PageTokens: 16}.RankBytes(qwen, 1); return err },
		"TP 1 with pages of 0 tokens": func() error {
			_, err := kv.New(qwen, kv.Side{TP: 1}, kv.Side{TP: 1, PageTokens: 1})
			return err
		},
		"TP 2 with pages of -1 tokens": func() error {
			_, err := kv.New(qwen, kv.Side{TP: 1, PageTokens: 1}, kv.Side{TP: 2, PageTokens: -1})
			return err
		},
		`page order "DHN"`:                       func() error { _, err := kv.Side{TP: 1, PageTokens: 1, Order: "DHN"}.Pool(qwen); return err },
		"want layers, element bytes, and either": func() error { _, err := kv.Side{TP: 1, PageTokens: 1}.Pool(bad); return err },
		"a figure of 1099511627776":              func() error { _, err := kv.Side{TP: 1, PageTokens: 1}.Pool(huge); return err },
	} {
		if err := try(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// The counts by hand for settings that systems use. A prompt of 100 tokens takes 6 full
// pages of 16 and one of 4.
func TestPlans(t *testing.T) {
	side := func(tp int, order kv.Order) kv.Side { return kv.Side{TP: tp, PageTokens: 16, Order: order} }
	for _, tt := range []struct {
		name, model         string
		prefill, decode     kv.Side
		pairs               int
		descriptors, pieces int64 // of one layer and pair
		min, max            int64
	}{
		// A page is one piece; the last one has its keys and its values apart: 4*4*256 bytes each.
		{"same", "Qwen2.5-7B", side(1, ""), side(1, kv.NHD), 1, 7, 8, 4096, 32768},
		{"same, by heads", "Qwen2.5-7B", side(1, kv.HND), side(1, kv.HND), 1, 7, 14, 1024, 32768},
		// 2 of 8 heads for each token, keys and values: 100*2 pieces of 512 bytes. Full pages
		// go on from keys to values on both sides: one descriptor; the last one takes two.
		{"TP1 to TP4", "Qwen3-32B", side(1, kv.NHD), side(4, kv.NHD), 4, 8, 200, 512, 512},
		// By heads the two heads of a page are one piece of 16 tokens each part; 4 in the last page.
		{"TP1 to TP4, by heads", "Qwen3-32B", side(1, kv.HND), side(4, kv.HND), 4, 8, 16, 1024, 8192},
		{"TP4 to TP4, other order", "Qwen3-32B", side(4, kv.NHD), side(4, kv.HND), 4, 28, 400, 256, 256},
		{"MLA", "DeepSeek-R1", side(16, kv.NHD), side(16, kv.NHD), 16, 7, 7, 4608, 18432},
	} {
		r, err := kv.New(find(t, tt.model), tt.prefill, tt.decode)
		if err != nil {
			t.Fatal(err)
		}
		p := r.Plan(100)
		if len(p.Pairs) != tt.pairs {
			t.Errorf("%s: %d pairs, want %d", tt.name, len(p.Pairs), tt.pairs)
			continue
		}
		for _, pair := range p.Pairs {
			if pair.LayerDescriptors != tt.descriptors || pair.LayerPieces != tt.pieces || pair.MinPiece != tt.min || pair.MaxPiece != tt.max {
				t.Errorf("%s: %+v, want %d descriptors, %d pieces of %d to %d bytes", tt.name, pair, tt.descriptors, tt.pieces, tt.min, tt.max)
			}
		}
	}
}

// Each decode rank needs all of an MLA cache and gets it from one rank; givers are loaded
// evenly.
func TestReplicasAreBalanced(t *testing.T) {
	for _, tt := range []struct {
		model            string
		prefill, decode  int
		givers, most     int
		bytesOfTheWholes int64
	}{
		{"DeepSeek-R1", 16, 16, 16, 1, 16}, {"DeepSeek-R1", 4, 16, 4, 4, 16}, {"DeepSeek-R1", 16, 4, 4, 1, 4}, {"DeepSeek-R1", 3, 7, 3, 3, 7},
		{"Qwen2.5-7B", 8, 16, 8, 2, 4}, {"Qwen2.5-7B", 16, 8, 8, 1, 2}, {"Qwen2.5-7B", 16, 2, 4, 1, 1}, {"Qwen2.5-7B", 2, 16, 2, 8, 4},
	} {
		m := find(t, tt.model)
		r, err := kv.New(m, kv.Side{TP: tt.prefill, PageTokens: 16}, kv.Side{TP: tt.decode, PageTokens: 32})
		if err != nil {
			t.Fatal(err)
		}
		gives := map[int]int{}
		for _, p := range r.Pairs() {
			gives[p.Prefill]++
		}
		most := 0
		for _, n := range gives {
			most = max(most, n)
		}
		if len(gives) != tt.givers || most != tt.most {
			t.Errorf("%s TP%d to TP%d: %d ranks give, one to %d; want %d and %d", tt.model, tt.prefill, tt.decode, len(gives), most, tt.givers, tt.most)
		}
		if got, want := r.Plan(77).Bytes, tt.bytesOfTheWholes*77*m.BytesPerToken(); got != want {
			t.Errorf("%s TP%d to TP%d: %d bytes, want %d", tt.model, tt.prefill, tt.decode, got, want)
		}
	}
}

// place is where a byte of a rank's pool lies: the definition of a layout, written down once
// more and without strides.
func place(s kv.Side, p kv.Pool, part, token, head, b int) (page, offset int) {
	row, column, rows := token%s.PageTokens, head, s.PageTokens
	columns := p.Heads
	if s.Order == kv.HND {
		row, column, rows, columns = column, row, p.Heads, s.PageTokens
	}
	return token / s.PageTokens, ((part*rows+row)*columns+column)*int(p.HeadBytes) + b
}

// heads are those that a rank keeps.
func heads(m kv.Model, s kv.Side, rank int) (list []int) {
	if m.MLA() {
		return []int{0}
	}
	for h := range m.KVHeads {
		if h*s.TP/m.KVHeads == rank || s.TP > m.KVHeads && rank*m.KVHeads/s.TP == h {
			list = append(list, h)
		}
	}
	return list
}

type where struct{ page, offset int }

// content lists what each byte of a rank's pages is: part, token, head and byte of the head.
func content(m kv.Model, s kv.Side, p kv.Pool, rank, tokens int) map[where][4]int {
	bytes := map[where][4]int{}
	for i, h := range heads(m, s, rank) {
		for part := range p.Parts {
			for token := range tokens {
				for b := range int(p.HeadBytes) {
					page, offset := place(s, p, part, token, i, b)
					bytes[where{page, offset}] = [4]int{part, token, h, b}
				}
			}
		}
	}
	return bytes
}

// Every byte that a decode rank needs is written once, from the byte that it is; nothing
// else is touched, pieces are as long as they can be, and Plan counts them.
func TestEveryByteOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := kv.Model{Name: "small", Layers: rapid.IntRange(1, 3).Draw(t, "layers"), ElementBytes: rapid.IntRange(1, 2).Draw(t, "element")}
		if rapid.Bool().Draw(t, "mla") {
			m.LatentDim, m.RopeDim = 2, 1
		} else {
			m.KVHeads, m.HeadDim = rapid.SampledFrom([]int{1, 2, 4, 6}).Draw(t, "heads"), rapid.IntRange(1, 2).Draw(t, "dim")
		}
		order := rapid.SampledFrom([]kv.Order{"", kv.NHD, kv.HND})
		pages := rapid.OneOf(rapid.Just(4), rapid.IntRange(1, 6))
		tps := []int{1, 2, 3, 4, 6, 8, 12}
		if !m.MLA() {
			tps = slices.DeleteFunc(tps, func(tp int) bool { return m.KVHeads%tp != 0 && tp%m.KVHeads != 0 })
		}
		tp := rapid.SampledFrom(tps)
		prefill := kv.Side{TP: tp.Draw(t, "prefill"), PageTokens: pages.Draw(t, "prefill page"), Order: order.Draw(t, "prefill order")}
		decode := kv.Side{TP: tp.Draw(t, "decode"), PageTokens: pages.Draw(t, "decode page"), Order: order.Draw(t, "decode order")}
		tokens := rapid.IntRange(0, 20).Draw(t, "tokens")
		r, err := kv.New(m, prefill, decode)
		if err != nil {
			t.Fatal(err)
		}
		source, _ := prefill.Pool(m)
		dest, _ := decode.Pool(m)
		plan := r.Plan(tokens)
		var bytes, descriptors, pieces int64
		for d := range decode.TP {
			want := content(m, decode, dest, d, tokens)
			for _, p := range plan.Pairs {
				if p.Decode != d {
					continue
				}
				from := content(m, prefill, source, p.Prefill, tokens)
				got := carry(t, r, p, tokens, from, want, source, dest)
				bytes, descriptors, pieces = bytes+got.bytes, descriptors+got.descriptors, pieces+got.pieces
			}
			if len(want) != 0 {
				t.Fatalf("decode rank %d lacks %d bytes", d, len(want))
			}
		}
		layers := int64(m.Layers)
		if plan.Bytes != bytes*layers || plan.Descriptors != descriptors*layers || plan.Pieces != pieces*layers || plan.Tokens != tokens || plan.Layers != m.Layers {
			t.Fatalf("plan %+v, want %d bytes, %d descriptors, %d pieces of each layer", plan, bytes, descriptors, pieces)
		}
	})
}

type count struct{ bytes, descriptors, pieces int64 }

// carry does the copies of a pair, takes what arrives off want and counts.
func carry(t *rapid.T, r *kv.Reslice, p kv.PairPlan, tokens int, from, want map[where][4]int, source, dest kv.Pool) (c count) {
	least, most := int64(math.MaxInt64), int64(0)
	type ends struct{ source, dest where }
	starts := map[ends]bool{}
	lengths := map[ends]int64{}
	for d := range r.Descriptors(p.Pair, tokens) {
		c.descriptors++
		if d.Count < 1 || d.Length < 1 || d.Count == 1 && (d.SourceStride != 0 || d.DestStride != 0) {
			t.Fatalf("descriptor %+v", d)
		}
		for i := range d.Count {
			c.pieces++
			least, most = min(least, d.Length), max(most, d.Length)
			s, e := d.Source+i*d.SourceStride, d.Dest+i*d.DestStride
			if s < 0 || s+d.Length > source.PageBytes || e < 0 || e+d.Length > dest.PageBytes {
				t.Fatalf("%+v leaves its page", d)
			}
			at := ends{where{d.SourcePage, int(s)}, where{d.DestPage, int(e)}}
			starts[at], lengths[at] = true, d.Length
			for b := range int(d.Length) {
				is, ok := from[where{d.SourcePage, int(s) + b}]
				into := where{d.DestPage, int(e) + b}
				if needs, open := want[into]; !ok || !open || is != needs {
					t.Fatalf("%+v writes %v (there: %v) to %v, where %v (open: %v) belongs", d, is, ok, into, needs, open)
				}
				delete(want, into)
				c.bytes++
			}
		}
	}
	for at, n := range lengths {
		next := at
		next.source.offset += int(n)
		next.dest.offset += int(n)
		// In another order the last of the keys may happen to lie beside the first of the values
		// on both sides; no stride could say that.
		corner := (r.Prefill.Order == kv.HND) != (r.Decode.Order == kv.HND) &&
			next.source.offset == int(source.PageBytes)/2 && next.dest.offset == int(dest.PageBytes)/2
		if starts[next] && !corner {
			t.Fatalf("the pieces at %v and %v are contiguous on both sides", at, next)
		}
	}
	if c.pieces == 0 {
		least = 0
	}
	if p.LayerBytes != c.bytes || p.LayerDescriptors != c.descriptors || p.LayerPieces != c.pieces || p.MinPiece != least || p.MaxPiece != most {
		t.Fatalf("plan %+v, want %+v of %d to %d bytes", p, c, least, most)
	}
	return c
}

// A list that is left early ends there.
func TestDescriptorsStop(t *testing.T) {
	r, err := kv.New(find(t, "Qwen3-32B"), kv.Side{TP: 1, PageTokens: 16}, kv.Side{TP: 2, PageTokens: 16, Order: kv.HND})
	if err != nil {
		t.Fatal(err)
	}
	for stop := range 56 { // 7 pages, keys and values, 4 heads: strides over tokens
		n := 0
		for range r.Descriptors(r.Pairs()[0], 100) {
			if n++; n > stop {
				break
			}
		}
		if n != stop+1 {
			t.Fatalf("%d descriptors, want %d", n, stop+1)
		}
	}
}

func BenchmarkPlan(b *testing.B) {
	for _, name := range []string{"Llama-3.1-70B", "DeepSeek-R1"} {
		m, err := kv.Find(name)
		if err != nil {
			b.Fatal(err)
		}
		r, err := kv.New(m, kv.Side{TP: 8, PageTokens: 16}, kv.Side{TP: 4, PageTokens: 128, Order: kv.HND})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("%s TP8 to TP4", name), func(b *testing.B) {
			for i := range b.N {
				r.Plan(12_000 + i%1000)
			}
		})
	}
}
