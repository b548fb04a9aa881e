package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/kv"

	"github.com/topoctl/topoctl/internal/kv/replay"
	kvreport "github.com/topoctl/topoctl/internal/kv/report"
	"github.com/topoctl/topoctl/internal/kv/serve"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
)

// report says what came of a run, which may have been stopped before its end.
func (r *replayRun) report(x *replay.Result, whole bool) (*kvreport.Report, error) {
	o, w, c := r.o, r.Workload, &r.Serve
	m, err := kv.Compute(w, x.Times, kv.Options{SLO: o.slo})
	if err != nil {
		return nil, err
	}
	prefillAt, decodeAt := r.ranksHere(), r.ranksThere()
	pulls := o.move == serve.Pull
	if pulls {
		prefillAt, decodeAt = decodeAt, prefillAt
	}
	decode := o.describe(&c.Decode, c.Cache.Decode, decodeAt)
	out := o.document(w, c)
	out.NetworkBasis, out.Network.Choice, out.Metrics, out.Failures = kvreport.Measured, "pathsel", m, failuresOf(w, x.Times)
	out.Prefill, out.Decode = o.describe(&c.Prefill, c.Cache.Prefill, prefillAt), &decode
	setCapacity(out, c, w)
	out.Hosts = []kvreport.Host{{Name: "here", Source: "this host", Prefill: !pulls, Decode: pulls}}
	for _, address := range o.peers {
		out.Hosts = append(out.Hosts, kvreport.Host{Name: o.peerName(address), Source: address, Prefill: pulls, Decode: !pulls})
	}
	if whole {
		out.Prefill.Busy, out.Prefill.Preempted = kvBusy(x.PrefillUse, &x.EndNS)
		out.Decode.Busy, out.Decode.Preempted = kvBusy(x.DecodeUse, &x.EndNS)
	}
	out.Lanes, out.Notes = o.lanes(x.Lanes, x.EndNS), r.notes(x)
	return out, nil
}

// peerName is what a peer is called in the report.
func (o *replayOptions) peerName(address string) string {
	if len(o.peers) == 1 {
		return "peer"
	}
	return fmt.Sprintf("peer%d", 1+slices.Index(o.peers, address))
}

// ranksHere and ranksThere name the place of each rank, by instance: "here:gpu:0", or by its region where
// that is not known: "peer:kv0".
func (r *replayRun) ranksHere() (out [][]string) {
	for _, regions := range r.Local {
		var ranks []string
		for _, x := range regions {
			ranks = append(ranks, rankName("here", x.Location(), x.Name()))
		}
		out = append(out, ranks)
	}
	return out
}

func (r *replayRun) ranksThere() (out [][]string) {
	_, there := r.o.sides()
	for _, regions := range r.Remote {
		var ranks []string
		for _, x := range regions {
			for range there.tp / len(regions) {
				ranks = append(ranks, rankName(r.o.peerName(x.Peer().Name()), x.Location(), x.Name()))
			}
		}
		out = append(out, ranks)
	}
	return out
}

func rankName(host string, at pathsel.Location, region string) string {
	if at != "" {
		return host + ":" + string(at)
	}
	return host + ":" + region
}

// describe is a side of the run in the report.
func (o *replayOptions) describe(p *serve.Pool, side kv.Side, ranks [][]string) kvreport.Pool {
	page, _ := side.RankBytes(o.model, side.PageTokens) // it was fine before
	return describePool(p, o.gpu, side.TP, page*int64(p.Pages), ranks)
}

// laneName names a lane, with its peer where there are several.
func (o *replayOptions) laneName(l *replay.Lane) string {
	name := l.Transport + " " + l.Name
	if len(o.peers) > 1 {
		name += " (" + o.peerName(l.Peer) + ")"
	}
	return name
}

// lanes says what each lane carried, and which part that is of what it should carry.
func (o *replayOptions) lanes(lanes []replay.Lane, durationNS int64) []kvreport.Lane {
	var out []kvreport.Lane
	for i := range lanes {
		l := &lanes[i]
		out = append(out, kvreport.Lane{Lane: o.laneName(l), Bytes: l.Bytes, BytesPerSec: l.BytesPerSec, Slices: l.Slices, Retries: l.Retries})
	}
	setShares(out, &durationNS)
	return out
}

// notes are what people should know of a run beside its figures.
func (r *replayRun) notes(x *replay.Result) []string {
	o := r.o
	var out []string
	for _, l := range x.Lost {
		out = append(out, fmt.Sprintf("%s (%s) was lost %.1f s after the start: %v", o.peerName(l.Peer), l.Peer, time.Duration(l.AtNS).Seconds(), l.Err))
	}
	for i := range x.Lanes {
		if l := &x.Lanes[i]; l.Retries > 0 || l.Error != "" {
			text := fmt.Sprintf("lane %s failed: %s sent again", o.laneName(l), text.Plural(int(l.Retries), "slice"))
			if l.Error != "" {
				text += ", the last error: " + l.Error
			}
			out = append(out, text)
		}
	}
	if more := r.needs(); more != "" {
		out = append(out, more)
	}
	if slices.ContainsFunc(r.Workload.Requests, func(q kv.Request) bool { return q.Blocks != nil }) {
		out = append(out, "shared prefixes of prompts are not reused: each prompt is computed in full, and all of it moves")
	}
	out = append(out, fmt.Sprintf("timers were late by %d us at the median and %d us at P99; the times include this", x.Timers.P50NS/1000, x.Timers.P99NS/1000),
		r.memoryNote())
	if o.verify {
		out = append(out, fmt.Sprintf("%d bytes were read back and are correct; the times include this", x.CheckedBytes))
	}
	return out
}

// memoryNote says what the caches here are in.
func (r *replayRun) memoryNote() string {
	atGPU := slices.ContainsFunc(r.Local, func(regions []*engine.Region) bool {
		return strings.HasPrefix(string(regions[0].Location()), "gpu:")
	})
	text := "caches here are in host memory"
	if r.unbound {
		text += ", which could not be bound to the NUMA nodes of its locations"
	}
	if atGPU {
		text += "; lanes are those of the GPUs where ranks are located"
	}
	return text
}
