// Package report says what came of a KV workload, for programs (topoctl.kv/v1) and for people:
// what was run and by which model, the columns of vLLM's serving benchmark, where the time to
// the first token went, what each lane carried, and the same run with other networks.
package report

import (
	"bytes"
	"fmt"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/kv"
	"github.com/topoctl/topoctl/internal/kv/serve"
)

// Schema is the name and major version of the document.
const Schema = "topoctl.kv/v1"

// Basis says how a part of a run is known.
type Basis string

// Bases of compute and network.
const (
	Modelled  Basis = "modelled"  // computed by formula, with parameters that are fitted or assumed
	Simulated Basis = "simulated" // in virtual time, over a described network
	Measured  Basis = "measured"  // real bytes over real lanes
)

// Report is the document. Lists are never null; what is not known is null.
type Report struct {
	Schema string    `json:"schema"`
	Tool   topo.Tool `json:"tool"`
	// ComputeBasis and NetworkBasis say what of this is real.
	ComputeBasis Basis    `json:"compute_basis"`
	NetworkBasis Basis    `json:"network_basis"`
	Workload     Workload `json:"workload"`
	Model        Model    `json:"model"`
	Prefill      Pool     `json:"prefill"`
	Decode       *Pool    `json:"decode"` // null: prefill's instances do both, and nothing moves
	Serving      Serving  `json:"serving"`
	Hosts        []Host   `json:"hosts"`
	Network      Network  `json:"network"`

	Metrics *kv.Metrics `json:"metrics"`
	// Lanes are those that carried something, by name.
	Lanes []Lane `json:"lanes"`
	// Compared is the same run with other networks; none where nothing else was run.
	Compared []Compared `json:"compared"`
	Failures []Failure  `json:"failures"` // reasons why requests have no answer
	Notes    []string   `json:"notes"`
}

// Workload is the requests of the clients.
type Workload struct {
	Name        string  `json:"name"`
	Trace       *string `json:"trace"` // the file that it is from; null: generated
	Requests    int     `json:"requests"`
	Concurrency *int    `json:"concurrency"` // null: requests come when they come
	Seed        uint64  `json:"seed,string"`
}

// Model is whose cache moves.
type Model struct {
	Name            string `json:"name"`
	Layers          int    `json:"layers"`
	KVBytesPerToken int64  `json:"kv_bytes_per_token"` // kept once
	Source          string `json:"source"`
}

// Pool are equal instances.
type Pool struct {
	Instances []Instance `json:"instances"`
	TP        int        `json:"tp"`
	PP        int        `json:"pp"` // pipeline stages
	GPU       string     `json:"gpu"`
	// CacheBytes is what each rank has for caches, Pages what that makes for an instance.
	CacheBytes       int64   `json:"cache_bytes_per_rank"`
	PageTokens       int     `json:"page_tokens"`
	Pages            int     `json:"pages"`
	MaxBatchedTokens int     `json:"max_batched_tokens"`
	MaxSequences     *int    `json:"max_sequences"` // at once; null: no bound
	Chunked          bool    `json:"chunked"`       // prompts are computed in parts, beside decodes
	Compute          Compute `json:"compute"`
	// CapacityPerSec is how many requests of the workload the instances could compute together, if nothing
	// but computing took time. null: not known. Of more that arrive each second some wait ever longer.
	CapacityPerSec *float64 `json:"capacity_requests_per_s"`
	// Busy is the part of the run in which an instance computes, on average; Preempted are the sequences
	// that had to yield their memory and were computed again. null: not known.
	Busy      *float64 `json:"busy"`
	Preempted *int64   `json:"preempted"`
	// PrefixBytes is what each instance keeps of prompts that are over, all ranks together; null: nothing is
	// kept. PrefixTokens of later prompts were found there and not computed, PrefixHitRatio is that in parts of
	// all tokens of prompts, 0 to 1; null: nothing is kept, or not known.
	PrefixBytes    *int64   `json:"prefix_bytes"`
	PrefixTokens   *int64   `json:"prefix_tokens"`
	PrefixHitRatio *float64 `json:"prefix_hit_ratio"`
}

// Instance is where the ranks of an instance are, in their order: "node1:gpu:0".
type Instance struct {
	Ranks []string `json:"ranks"`
}

// Compute are the parameters of the model that times are from.
type Compute struct {
	Prefill serve.Prefill `json:"prefill"`
	Decode  serve.Decode  `json:"decode"`
}

// ComputeOf takes the parameters over.
func ComputeOf(p *serve.Params) Compute { return Compute{p.Prefill, p.Decode} }

// Serving is how the serving system works.
type Serving struct {
	Move          string `json:"move"`            // "push", "push-layers" or "pull"
	LayersPerMove *int   `json:"layers_per_move"` // null unless layers move one after the other
	Admit         string `json:"admit"`           // when the decode side is asked for memory
	FirstToken    string `json:"first_token"`     // who gives it
	Router        string `json:"router"`
	ReserveOutput bool   `json:"reserve_output"` // memory is taken for prompt and answer at once
	SendBlocks    bool   `json:"send_blocks"`    // prefill computes nothing while a cache leaves it
	ReceiveBlocks bool   `json:"receive_blocks"` // decode computes nothing while a cache comes
	HandoffNS     int64  `json:"handoff_ns"`     // until the decode side knows of a computed prompt
	SetupNS       int64  `json:"setup_ns"`       // of a transfer between two ranks
	PieceNS       int64  `json:"piece_ns"`       // of each contiguous piece of it
	PageOrder     string `json:"page_order"`     // "NHD" or "HND": how the elements of a page follow each other, by vLLM's names
}

// Host is one that takes part.
type Host struct {
	Name    string `json:"name"`
	Source  string `json:"source"` // the file or fixture that describes it
	Prefill bool   `json:"prefill"`
	Decode  bool   `json:"decode"`
}

// Network is what is between them.
type Network struct {
	FabricFile *string  `json:"fabric_file"` // null: none was given; where it is simulated, one switch joins all ports
	Leaves     *int     `json:"leaves"`      // null: a real network, not known
	Spines     *int     `json:"spines"`
	Choice     string   `json:"choice"` // of lanes
	Policy     string   `json:"policy"` // by which lanes share a transfer
	WhatIf     []string `json:"what_if"`
	SliceBytes *int64   `json:"slice_bytes"` // the largest piece of a transfer that a lane carries at once
}

// Lane is what went over a pair of ports.
type Lane struct {
	Lane  string `json:"lane"` // "n0:mlx5_0 > n1:mlx5_0"
	Bytes int64  `json:"bytes"`
	// Share of all bytes, 0 to 1.
	Share *float64 `json:"share"`
	// BytesPerSec is the lowest rate on its way, 0 where it is down; Use is which part of that it carried over the
	// whole run.
	BytesPerSec *int64   `json:"bytes_per_sec"`
	Use         *float64 `json:"use"`
	Slices      int64    `json:"slices"`
	Retries     int64    `json:"retries"`
}

// Compared is the run with another network.
type Compared struct {
	Name    string      `json:"name"`
	Choice  string      `json:"choice"`
	Policy  string      `json:"policy"`
	WhatIf  []string    `json:"what_if"`
	Metrics *kv.Metrics `json:"metrics"`
	// TTFTRatio is its mean time to first token in parts of this run's. null: one of both has none, or
	// requests of equal lengths keep a fixed concurrency, where the ratio says nothing of the network.
	TTFTRatio *float64 `json:"ttft_mean_ratio"`
}

// Failure is a reason why requests have no answer.
type Failure struct {
	Requests int    `json:"requests"`
	First    int    `json:"first_request"` // its place in the workload, from 0
	Line     *int   `json:"first_line"`    // of the trace; null: generated
	Reason   string `json:"reason"`        // of the first one
}

// Encode writes the document: schema first, a field or an element of a list a line. The report
// itself is left as it is.
func (r *Report) Encode() ([]byte, error) {
	x := *r
	x.Schema = Schema
	x.Prefill.Instances = listed(x.Prefill.Instances)
	if r.Decode != nil {
		decode := *r.Decode
		decode.Instances = listed(decode.Instances)
		x.Decode = &decode
	}
	x.Network.WhatIf = listed(x.Network.WhatIf)
	x.Hosts, x.Lanes, x.Failures, x.Notes = listed(x.Hosts), listed(x.Lanes), listed(x.Failures), listed(x.Notes)
	x.Compared = listed(x.Compared)
	for i := range x.Compared {
		x.Compared[i].WhatIf = listed(x.Compared[i].WhatIf)
	}
	data, err := document.Line(&x)
	if err == nil {
		data, err = document.Layout(data)
	}
	if err != nil {
		return nil, fmt.Errorf("kv report: %w", err)
	}
	return bytes.Replace(data, []byte("{\n"), []byte("{"), 1), nil // the schema is on the first line
}

// listed is a copy of a list that is never null.
func listed[T any](list []T) []T { return append([]T{}, list...) }
