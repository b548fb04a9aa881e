package measure_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/measure"
	"github.com/topoctl/topoctl/probe/plan"
)

// The memory of this host, with events as they come.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	t, err := discover.Discover(ctx, discover.Options{})
	if err != nil {
		log.Fatal(err)
	}
	p, err := measure.Local(t, measure.LocalOptions{Pairs: plan.LocalOptions{Kinds: []probe.Kind{probe.Memory}}})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	pairs, err := p.Pairs(ctx)
	if err != nil {
		log.Fatal(err)
	}
	todo, err := plan.Make(pairs, plan.Options{Spec: probe.DefaultSpec()})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(todo.Rounds), "rounds, about", todo.Estimate.Time)
	report, err := measure.Run(ctx, p, measure.Options{Plan: todo, Event: func(e *probe.Event) {
		if e.Result != nil {
			fmt.Println(e.Result.ID, e.Result.Verdict)
		}
	}})
	if err != nil { // ctx has ended; the report has what was measured until then
		log.Print(err)
	}
	fmt.Printf("%+v\n", report.Summary)
}

// The ports of two hosts, on which "topoctl agent --serve-probes" runs.
func ExampleHosts() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p, err := measure.Hosts(ctx, measure.HostsOptions{
		Hosts:       []probe.Host{{Name: "n1", Address: "10.0.0.1:7411"}, {Name: "n2", Address: "10.0.0.2:7411"}},
		Credentials: trust.Secret([]byte("the token of the agents")),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	report, err := measure.Run(ctx, p, measure.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for _, b := range report.Blame {
		fmt.Println(b.Kind, b.Suspects[0].Name)
	}
}

// simulator is a Prober of hosts that are not there. One port is slow.
type simulator struct {
	hosts []plan.Host
	slow  string // HOST/PORT
	now   time.Duration
}

func (s *simulator) Pairs(context.Context) (*plan.Pairs, error) {
	return plan.Fabric(s.hosts, plan.FabricOptions{})
}

func (s *simulator) Round(ctx context.Context, pairs []probe.Pair, spec probe.Spec, tell func(int, probe.Sample)) []probe.Measurement {
	out := make([]probe.Measurement, len(pairs))
	for i, p := range pairs {
		rate := int64(*p.Expected.BytesPerSec)
		if p.From.Host+"/"+p.From.Name == s.slow || p.To.Host+"/"+p.To.Name == s.slow {
			rate /= 4
		}
		var samples []int64
		size, stopped := spec.SizesBytes[0], ""
		for enough := false; !enough; stopped, enough = spec.Enough(samples) {
			samples = append(samples, rate)
			tell(i, probe.Sample{SizeBytes: size, BytesPerSec: rate})
		}
		took := spec.SampleTime * time.Duration(len(samples))
		out[i].Bandwidth = []probe.Bandwidth{probe.NewBandwidth(size, samples, int64(float64(rate)*took.Seconds()), int64(took), stopped)}
	}
	s.now += time.Second
	return out
}

func (s *simulator) Hosts() []probe.Host { return nil }

// A Prober of one's own: verdicts and blame are those of "topoctl probe fabric".
func ExampleProber() {
	machine, err := fixtures.Topology("a10-2nic")
	if err != nil {
		log.Fatal(err)
	}
	s := &simulator{slow: "n3/mlx5_0"}
	for _, name := range []string{"n1", "n2", "n3"} {
		s.hosts = append(s.hosts, plan.Host{Name: name, Topology: machine})
	}
	report, err := measure.Run(context.Background(), s, measure.Options{Elapsed: func() time.Duration { return s.now }})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Summary.Pass, "pass,", report.Summary.Fail, "fail in", time.Duration(report.DurationNS))
	for _, b := range report.Blame {
		fmt.Printf("%s: one of %d parts explains %d pairs, such as %s\n", b.Kind, len(b.Suspects), len(b.Pairs), b.Pairs[0])
	}
	// Output:
	// 8 pass, 4 fail in 10s
	// fault: one of 7 parts explains 4 pairs, such as port n1/mlx5_0>n3/mlx5_0 rdma
}
