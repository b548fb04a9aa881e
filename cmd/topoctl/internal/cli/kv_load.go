package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/kv"
)

// loadFlags are the flags of the requests.
type loadFlags struct {
	requests, concurrency int
	rateText              string
	ratePerSec            float64
	burstiness            float64
	inputLen, outputLen   int
	inputRange            float64
	trace                 string
	conversation          int
	seed                  uint64
}

func (l *loadFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	intFlag(cmd, &l.requests, "requests", 1000, 1, kv.MaxRequests, "number `N` of requests to generate")
	fl.StringVar(&l.rateText, "rate", "inf", "`N` requests per second; inf for all at once")
	fl.Float64Var(&l.burstiness, "burstiness", 1, "with --rate, `SHAPE` of the gamma distribution of gaps; 1 is Poisson, less is burstier")
	intFlag(cmd, &l.concurrency, "concurrency", 0, 1, kv.MaxRequests, "keep `N` requests in progress")
	intFlag(cmd, &l.inputLen, "input-len", 1024, 1, kv.MaxTokens, "`N` tokens in each prompt")
	intFlag(cmd, &l.outputLen, "output-len", 128, 1, kv.MaxTokens, "`N` tokens in each answer")
	fl.Float64Var(&l.inputRange, "input-range", 0, "vary the length of prompts by up to this `FRACTION`, 0 to less than 1")
	fl.StringVar(&l.trace, "trace", "", "read requests from `FILE` in Mooncake's trace format, - for standard input")
	intFlag(cmd, &l.conversation, "conversation", 0, 1, kv.MaxRequests, "generate `N` requests like those of Mooncake's conversation trace")
	fl.Uint64Var(&l.seed, "seed", 1, "random seed `N`; equal seeds give equal runs")
}

// check says which flags do not go together.
func (l *loadFlags) check(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	if err := checkTogether(cmd,
		flagRule{"requests rate burstiness concurrency input-len output-len input-range", idleWith, "trace conversation", ""},
		flagRule{"trace", excludes, "conversation", ""}); err != nil {
		return err
	}
	rate, err := strconv.ParseFloat(l.rateText, 64)
	l.ratePerSec = rate
	switch {
	case err != nil || !(rate > 0):
		return fmt.Errorf("--rate %q: want requests per second, above 0, or inf", l.rateText)
	case changed("burstiness") && math.IsInf(rate, 1):
		return errors.New("--burstiness has no effect without --rate")
	case !(l.burstiness > 0):
		return fmt.Errorf("--burstiness %v: want more than 0; 1 is Poisson", l.burstiness)
	case l.concurrency > 0 && !math.IsInf(rate, 1):
		return errors.New("--rate and --concurrency cannot be used together")
	case !(l.inputRange >= 0 && l.inputRange < 1):
		return fmt.Errorf("--input-range %v: want 0 or more, but less than 1", l.inputRange)
	}
	return nil
}

// workload makes or reads the requests.
func (l *loadFlags) workload(ctx context.Context, in *Host) (*kv.Workload, error) {
	if l.trace != "" {
		data, err := in.ReadFile(ctx, l.trace)
		if err != nil {
			return nil, fmt.Errorf("--trace: %w", err)
		}
		name := l.trace
		if name == "-" {
			name = stdinName
		}
		w, err := kv.ReadTrace(bytes.NewReader(data), "trace "+name)
		if err != nil {
			return nil, fmt.Errorf("--trace %s: %w", name, err)
		}
		return w, nil
	}
	spec := kv.Spec{Requests: l.requests, Seed: l.seed, Input: kv.Uniform(l.inputLen, l.inputRange), Output: kv.Fixed(l.outputLen),
		Arrivals: kv.Arrivals{RatePerSec: l.ratePerSec, Burstiness: l.burstiness, Concurrency: l.concurrency}}
	if l.conversation > 0 {
		spec = kv.Conversation(l.conversation, l.seed, 0)
	}
	return kv.Generate(spec)
}
