package kv

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// z90 is the 90th percentile of the normal distribution.
const z90 = 1.2815515655446004

// LognormalP90 draws from the lognormal distribution that has this median and this 90th
// percentile, in tokens; none is longer than most.
func LognormalP90(median, p90, most int) Lengths {
	return lognormal{median, most, math.Log(float64(p90)/float64(median)) / z90, fmt.Sprintf("p90 %d", p90)}
}

// WriteTrace writes the requests of a workload in the format that ReadTrace reads, which
// gives them back. Times that are no whole milliseconds get decimals. Requests without
// Blocks get names that no other has, because other readers of the format want them. The
// format has no place for a concurrency: such a workload is refused.
func WriteTrace(out io.Writer, w *Workload) error {
	if w.Concurrency > 0 {
		return errors.New("a workload of fixed concurrency has no arrival times and cannot be written as a trace")
	}
	next := int64(0)
	for _, r := range w.Requests {
		for _, b := range r.Blocks {
			next = max(next, b+1)
		}
	}
	buffer := bufio.NewWriter(out)
	for _, r := range w.Requests {
		ids := r.Blocks
		if ids == nil {
			ids = make([]int64, blocks(r.Input))
			for i := range ids {
				ids[i] = next
				next++
			}
		}
		names, err := json.Marshal(ids)
		if err != nil {
			return err
		}
		fmt.Fprintf(buffer, `{"timestamp": %s, "input_length": %d, "output_length": %d, "hash_ids": %s}`+"\n", formatMS(r.ArriveNS), r.Input, r.Output, names)
	}
	return buffer.Flush()
}
