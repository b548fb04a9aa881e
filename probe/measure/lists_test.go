package measure

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// allocated is the memory that f takes, garbage included.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// What a peer says takes little more memory than it has bytes, whatever it is.
func TestAmplification(t *testing.T) {
	fill := func(before, what, after string, most int) []byte {
		text := fmt.Sprintf(`{"schema":%q,`, callSchema) + before
		return []byte(text + strings.Repeat(what+",", (most-len(text)-len(after))/(len(what)+1)-1) + what + after)
	}
	for _, list := range []string{`"jobs":[`, `"JOBS":[`, `"jobs":[{"result":{"bandwidth":[`, `"jobs":[{"samples":[`, `"looks":[{"path":[`} {
		for _, what := range longtest.Sample([]string{"{}", "0"}, 1) {
			after := strings.Repeat("]}", strings.Count(list, "{")+1)
			if strings.Contains(list, "result") {
				after = "]}}]}"
			}
			request, said := fill(list, what, after, engine.MaxCallBytes), fill(list, what, after, engine.MaxAnswerBytes)
			if !json.Valid(request) || !json.Valid(said) {
				t.Fatalf("%s%s: no JSON", list, what)
			}
			if n := allocated(func() { _, _ = parseRequest(request) }); n > 64*engine.MaxCallBytes {
				t.Errorf("%s%s: a request takes %d MiB", list, what, n>>20)
			}
			if n := allocated(func() { _ = decode(said, maxAnswerEntries, new(answer)) }); n > 64*engine.MaxAnswerBytes {
				t.Errorf("%s%s: an answer takes %d MiB", list, what, n>>20)
			}
		}
	}
	for _, most := range []int{maxEntries, maxAnswerEntries} { // the most that is decoded
		data := []byte(`{"jobs":[` + strings.Repeat("0,", most-1) + `0]}`)
		if n := allocated(func() { _ = decode(data, most, new(request)) }); n > 256<<20 {
			t.Errorf("%d entries take %d MiB", most, n>>20)
		}
	}
}

// All pairs of a host may be in one round: some connect while others wait.
func TestManyPairsInARound(t *testing.T) {
	jobs := request{Schema: callSchema, Do: doConnect}
	for id := range 1000 {
		jobs.Jobs = append(jobs.Jobs, jobWant{ID: id, Transport: "tcp", Bytes: 1, Host: "h", Addresses: []string{"1.2.3.4:5"}, Region: "r", GiveUp: time.Second, Spec: quick()})
	}
	if data, err := encodeRequest(&jobs); err != nil {
		t.Error(err)
	} else if _, err := parseRequest(data); err != nil {
		t.Error(err)
	}
	checkLeaks(t)
	f := fleetOf(t, agentOf(t, "a", ServerOptions{}, nil, nil), agentOf(t, "b", ServerOptions{}, nil, nil))
	var list []probe.Pair
	for range 3 * maxConnecting {
		list = append(list, pair("n0", "n1"))
	}
	s := quick()
	s.SizesBytes, s.LatencySamples = nil, 5
	for i, m := range f.Round(limited(t), list, s, nil) {
		if m.Err != nil || m.Waived != "" || m.Latency == nil {
			t.Fatalf("%d: %v, %q", i, m.Err, m.Waived)
		}
	}
}
