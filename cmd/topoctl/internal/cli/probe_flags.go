package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/bench"
	"github.com/topoctl/topoctl/internal/measure/local"
	"github.com/topoctl/topoctl/internal/measure/plan"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
)

// measureFlags are the flags of a run of measurements, by topic.
type measureFlags struct {
	sampleFlags
	judgeFlags
	planFlags
	outputFlags
}

func (m *measureFlags) add(cmd *cobra.Command) {
	m.planFlags.add(cmd)
	m.outputFlags.add(cmd)
	m.sampleFlags.add(cmd)
	m.judgeFlags.add(cmd)
}

// measureRules say how the flags go together.
var measureRules = []flagRule{
	{"report events", idleWith, "dry-run", ""},
	{"dry-run", needs, "output=table output=wide output=json", ""},
	{"out-file", idleWith, "output=jsonl", "use --events FILE to write events to a file"},
	{"size", excludes, "sweep", ""},
	{"bw", excludes, "lat", ""},
	{"size sweep duration ci min-samples max-samples rate-limit bidir", idleWith, "lat", ""},
}

// parse checks the flags and gives what measurements and verdicts go by.
func (m *measureFlags) parse(cmd *cobra.Command) (spec probe.Spec, rules probe.Rules, err error) {
	if err := errors.Join(m.planFlags.check(cmd), m.outputFlags.check(cmd), checkTogether(cmd, measureRules...)); err != nil {
		return spec, rules, err
	}
	if spec, err = m.spec(cmd); err != nil {
		return spec, rules, err
	}
	rules, err = m.rules()
	return spec, rules, err
}

// sampleFlags say what is measured of each pair, and how long.
type sampleFlags struct {
	bw, lat  bool
	size     int64
	sweep    []int64
	duration time.Duration
	each     probe.Spec // but for what follows from the others
}

// The defaults of the measurements that flags do not name: samples of latency, and how
// often the time for the fewest samples a pair may take.
const (
	latencySamples = 1000
	pairTimeFactor = 4
)

func (s *sampleFlags) add(cmd *cobra.Command) {
	s.each = local.DefaultSpec()
	fl, x := cmd.Flags(), &s.each
	fl.BoolVar(&s.bw, "bw", false, "measure bandwidth only")
	fl.BoolVar(&s.lat, "lat", false, "measure latency only")
	Var(cmd, &s.size, "size", sizeText(x.SizesBytes[0]), "`SIZE` of each op", parseBytes)
	Var(cmd, &s.sweep, "sweep", "", "range of sizes (`FROM:TO:xFACTOR`), such as 4KiB:256MiB:x4; the largest is judged", parseSweep)
	fl.DurationVar(&x.Warmup, "warmup", x.Warmup, "warm up for `TIME` before each size")
	fl.DurationVar(&s.duration, "duration", x.SampleTime*time.Duration(x.MinSamples), "`TIME` for --min-samples of each size; more follow until --ci is reached")
	Var(cmd, &x.CI, "ci", partText(x.CI), "stop when the 95 % interval is within this `PERCENT` of the mean", parsePart)
	fl.IntVar(&x.MinSamples, "min-samples", x.MinSamples, "minimum number `N` of samples")
	fl.IntVar(&x.MaxSamples, "max-samples", x.MaxSamples, "maximum number `N` of samples")
	Var(cmd, &x.RateLimit, "rate-limit", "", "limit each pair to `RATE`, such as 10Gb/s", parseRate)
	Group(cmd, "Samples", "bw", "lat", "size", "sweep", "warmup", "duration", "ci", "min-samples", "max-samples", "rate-limit")
	Offer(cmd, map[string]completer{
		"size": Words("64KiB", "1MiB", "16MiB"), "sweep": Words("4KiB:16MiB:x4"), "duration": Words("500ms", "2s"),
		"ci": Words("2.5%", "5%"), "rate-limit": Words("1GB/s"),
	})
}

// spec checks the flags and gives what they say of measurements.
func (s *sampleFlags) spec(cmd *cobra.Command) (probe.Spec, error) {
	out := s.each
	out.LatencySamples = latencySamples
	switch {
	case out.MinSamples < 2 || out.MinSamples > 1000:
		return out, fmt.Errorf("--min-samples %d: want 2 to 1000", out.MinSamples)
	case !cmd.Flags().Changed("max-samples") && out.MaxSamples < out.MinSamples:
		out.MaxSamples = out.MinSamples
	case out.MaxSamples < out.MinSamples || out.MaxSamples > 1000:
		return out, fmt.Errorf("--max-samples %d: want --min-samples (%d) to 1000", out.MaxSamples, out.MinSamples)
	}
	out.SampleTime = s.duration / time.Duration(out.MinSamples)
	switch {
	case out.Warmup < 0 || out.Warmup > time.Hour:
		return out, fmt.Errorf("--warmup %s: want 0 to 1h", out.Warmup)
	case out.SampleTime < time.Millisecond || s.duration > time.Hour:
		return out, fmt.Errorf("--duration %s: want %s (1 ms for each of --min-samples) to 1h", s.duration, time.Duration(out.MinSamples)*time.Millisecond)
	}
	var err error
	if out.SizesBytes, err = s.sizes(); err != nil {
		return out, err
	}
	if s.bw {
		out.LatencySamples = 0
	}
	// Samples that do not settle are taken to --max-samples, but not for ever.
	each := out.Warmup + pairTimeFactor*s.duration
	out.PairTime = time.Duration(len(out.SizesBytes))*each + out.Warmup + time.Second
	return out, nil
}

// sizes are those of ops; none where only latency is measured.
func (s *sampleFlags) sizes() ([]int64, error) {
	if s.lat {
		return []int64{}, nil
	}
	flag, sizes := "size", []int64{s.size}
	if s.sweep != nil {
		flag, sizes = "sweep", s.sweep
	}
	if sizes[len(sizes)-1] > 1<<30 {
		return nil, fmt.Errorf("--%s: ops of more than 1 GiB are not measured", flag)
	}
	return sizes, nil
}

// judgeFlags say when a pair is bad, and how often it is measured again then.
type judgeFlags struct {
	verdicts probe.Rules // but for outliers
	outlier  outlier
}

func (j *judgeFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	j.verdicts = probe.DefaultRules()
	rules := &j.verdicts
	Var(cmd, &rules.FailUnder, "fail-under", partText(rules.FailUnder), "a pair fails below this `PERCENT` of the expected rate", parsePart)
	Var(cmd, &rules.WarnUnder, "warn-under", partText(rules.WarnUnder), "warn about a pair below this `PERCENT` of the expected rate", parsePart)
	Var(cmd, &j.outlier, "outlier", fmt.Sprintf("%s/%gx", partText(rules.OutlierUnder), rules.OutlierOver), "outliers: below this part of the best similar rate, or above this multiple of the latency (`PERCENT/MULTIPLEx`)", parseOutlier)
	fl.IntVar(&rules.Retests, "retest", rules.Retests, "number `N` of times to measure bad pairs again, alone")
	Group(cmd, "Verdicts", "fail-under", "warn-under", "outlier", "retest")
	Offer(cmd, map[string]completer{
		"fail-under": Words("80%"), "warn-under": Words("90%"), "outlier": Words("93%/2.1x"),
	})
}

// rules checks the flags and gives what they say of verdicts.
func (j *judgeFlags) rules() (probe.Rules, error) {
	r := j.verdicts
	r.OutlierUnder, r.OutlierOver = j.outlier.Under, j.outlier.Over
	switch {
	case r.WarnUnder < r.FailUnder:
		return r, fmt.Errorf("--warn-under %s is below --fail-under %s", partText(r.WarnUnder), partText(r.FailUnder))
	case r.Retests < 0 || r.Retests > 10:
		return r, fmt.Errorf("--retest %d: want 0 to 10", r.Retests)
	}
	return r, nil
}

// planFlags say which pairs are measured, and which of them at the same time.
type planFlags struct {
	selected          []string
	bidir             bool
	schedule, contend string
	maxDuration       time.Duration
	dryRun            bool
}

var schedules = []string{string(plan.ByLink), string(plan.ByEndpoint), string(plan.Serial)}

func (p *planFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringArrayVar(&p.selected, "select", nil, "only pairs that match `FROM>TO`, or an endpoint NAME; * and ? are wildcards; repeatable")
	fl.BoolVar(&p.bidir, "bidir", false, "load both directions of each pair")
	fl.StringVar(&p.schedule, "schedule", schedules[0], "pairs at the same time share no `WHAT`: link or endpoint; serial: one at a time")
	fl.StringVar(&p.contend, "contend", "", "all pairs that use `LINK` at the same time, to find its capacity")
	fl.DurationVar(&p.maxDuration, "max-duration", 0, "start no round that would end after `TIME`; 0 for no limit")
	fl.BoolVar(&p.dryRun, "dry-run", false, "print the rounds with their time and bytes, but measure nothing")
	Group(cmd, pairsGroup, "select", "bidir", "schedule", "contend", "max-duration", "dry-run")
	Offer(cmd, map[string]completer{
		"schedule": Words(schedules...), "max-duration": Words("1m", "10m"),
	})
}

func (p *planFlags) check(cmd *cobra.Command) error {
	for i, s := range p.selected {
		p.selected[i] = strings.ReplaceAll(s, "->", ">")
	}
	if p.maxDuration < 0 {
		return fmt.Errorf("--max-duration %s: want 0 or more", p.maxDuration)
	}
	return errors.Join(notEmpty(cmd, "select", "contend"), checkWords("schedule", []string{p.schedule}, schedules))
}

// outputFlags say where results go, and which there are already.
type outputFlags struct {
	outFile                OutFile
	all                    bool
	report, events, resume string
}

// pairsGroup is the heading of the flags that say what is measured.
const pairsGroup = "Pairs"

func (o *outputFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	o.addPrinted(cmd)
	fl.StringVar(&o.report, "report", "", "also write the report as JSON to `FILE`")
	fl.StringVar(&o.events, "events", "", "also write events as JSON lines to `FILE` during the run")
	Group(cmd, "Output", "all", "out-file", "report", "events")
	fl.StringVar(&o.resume, "resume", "", "only pairs that are not in `FILE`, the report or events of an earlier run")
	Group(cmd, pairsGroup, "resume")
}

// addPrinted adds the flags of commands that print a report.
func (o *outputFlags) addPrinted(cmd *cobra.Command) {
	o.outFile.Add(cmd)
	cmd.Flags().BoolVar(&o.all, "all", false, "list every pair, all evidence and all notes")
}

func (o *outputFlags) check(cmd *cobra.Command) error {
	files := []string{o.outFile.Name, o.report, o.events}
	for i, f := range files {
		if f != "" && f != "/dev/full" && slices.Contains(files[:i], f) {
			return fmt.Errorf("more than one output would go to %s", f)
		}
	}
	return notEmpty(cmd, "out-file", "report", "events", "resume")
}

// portFlags say how pairs of ports are measured.
type portFlags struct {
	transport, memory string
}

var (
	probeTransports = []string{bench.Auto, "rdma", "tcp"}
	memoryKinds     = []string{string(plan.OnCPU), string(plan.OnGPU)}
)

func (p *portFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.transport, "transport", bench.Auto, "`TRANSPORT` between ports: "+either(probeTransports)+"; auto uses RDMA if both ends have it")
	cmd.Flags().StringVar(&p.memory, "memory", memoryKinds[0], "`KIND` of memory to move between ports, nearest to each: cpu or gpu")
	Group(cmd, pairsGroup, "transport", "memory")
	Offer(cmd, map[string]completer{"transport": Words(probeTransports...), "memory": Words(memoryKinds...)})
}

func (p *portFlags) check() error {
	return errors.Join(checkWords("transport", []string{p.transport}, probeTransports), checkWords("memory", []string{p.memory}, memoryKinds))
}

// wanted is the transport that pathsel is asked for.
func (p *portFlags) wanted() pathsel.Transport {
	if p.transport == bench.Auto {
		return pathsel.Auto
	}
	return pathsel.Transport(p.transport)
}
