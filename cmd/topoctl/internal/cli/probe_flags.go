package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/bench"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/plan"
)

// measureFlags are the flags of a run of measurements.
type measureFlags struct {
	// What is measured of each pair, and how long.
	bw, lat  bool
	size     int64
	sweep    []int64
	duration time.Duration
	each     probe.Spec // but for what follows from the others

	// When a pair is bad, and how often it is measured again then.
	verdicts probe.Rules // but for outliers
	outlier  outlier

	// Which pairs are measured, and which of them at the same time.
	selected    []string
	bidir       bool
	schedule    plan.Schedule
	contend     string
	maxDuration time.Duration
	dryRun      bool

	// Where results go, and which there are already.
	outFile                OutFile
	all                    bool
	report, events, resume string
}

func (m *measureFlags) add(cmd *cobra.Command) {
	m.addPairs(cmd)
	m.addOutput(cmd)
	m.addSamples(cmd)
	m.addVerdicts(cmd)
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
	for i, s := range m.selected {
		m.selected[i] = strings.ReplaceAll(s, "->", ">")
	}
	files := []string{m.outFile.Name, m.report, m.events}
	for i, f := range files {
		if f != "" && f != "/dev/full" && slices.Contains(files[:i], f) {
			return spec, rules, fmt.Errorf("more than one output would go to %s", f)
		}
	}
	if err := checkTogether(cmd, measureRules...); err != nil {
		return spec, rules, err
	}
	if spec, err = m.spec(cmd); err != nil {
		return spec, rules, err
	}
	rules, err = m.rules()
	return spec, rules, err
}

// The defaults of the measurements that flags do not name: samples of latency, and how
// often the time for the fewest samples a pair may take.
const (
	latencySamples = 1000
	pairTimeFactor = 4
)

func (m *measureFlags) addSamples(cmd *cobra.Command) {
	m.each = probe.DefaultSpec()
	fl, x := cmd.Flags(), &m.each
	fl.BoolVar(&m.bw, "bw", false, "measure bandwidth only")
	fl.BoolVar(&m.lat, "lat", false, "measure latency only")
	Var(cmd, &m.size, "size", sizeText(x.SizesBytes[0]), "`SIZE` of each op", parseBytes)
	Var(cmd, &m.sweep, "sweep", "", "range of sizes (`FROM:TO:xFACTOR`), such as 4KiB:256MiB:x4; the largest is judged", parseSweep)
	timeFlag(cmd, &x.Warmup, "warmup", x.Warmup, 0, time.Hour, "warm up for `TIME` before each size")
	fl.DurationVar(&m.duration, "duration", x.SampleTime*time.Duration(x.MinSamples), "`TIME` for --min-samples of each size; more follow until --ci is reached")
	Var(cmd, &x.CI, "ci", partText(x.CI), "stop when the 95 % interval is within this `PERCENT` of the mean", parsePart)
	intFlag(cmd, &x.MinSamples, "min-samples", x.MinSamples, 2, 1000, "minimum number `N` of samples")
	fl.IntVar(&x.MaxSamples, "max-samples", x.MaxSamples, "maximum number `N` of samples")
	Var(cmd, &x.RateLimit, "rate-limit", "", "limit each pair to `RATE`, such as 10Gb/s", parseRate)
	Group(cmd, "Samples", "bw", "lat", "size", "sweep", "warmup", "duration", "ci", "min-samples", "max-samples", "rate-limit")
	Offer(cmd, map[string]completer{
		"size": Words("64KiB", "1MiB", "16MiB"), "sweep": Words("4KiB:16MiB:x4"), "duration": Words("500ms", "2s"),
		"ci": Words("2.5%", "5%"), "rate-limit": Words("1GB/s"),
	})
}

// spec checks the flags and gives what they say of measurements.
func (m *measureFlags) spec(cmd *cobra.Command) (probe.Spec, error) {
	out := m.each
	out.LatencySamples = latencySamples
	switch {
	case !cmd.Flags().Changed("max-samples") && out.MaxSamples < out.MinSamples:
		out.MaxSamples = out.MinSamples
	case out.MaxSamples < out.MinSamples || out.MaxSamples > 1000:
		return out, fmt.Errorf("--max-samples %d: want --min-samples (%d) to 1000", out.MaxSamples, out.MinSamples)
	}
	out.SampleTime = m.duration / time.Duration(out.MinSamples)
	if out.SampleTime < time.Millisecond || m.duration > time.Hour {
		return out, fmt.Errorf("--duration %s: want %s (1 ms for each of --min-samples) to 1h", m.duration, time.Duration(out.MinSamples)*time.Millisecond)
	}
	var err error
	if out.SizesBytes, err = m.sizes(); err != nil {
		return out, err
	}
	if m.bw {
		out.LatencySamples = 0
	}
	// Samples that do not settle are taken to --max-samples, but not for ever.
	each := out.Warmup + pairTimeFactor*m.duration
	out.PairTime = time.Duration(len(out.SizesBytes))*each + out.Warmup + time.Second
	return out, nil
}

// sizes are those of ops; none where only latency is measured.
func (m *measureFlags) sizes() ([]int64, error) {
	if m.lat {
		return []int64{}, nil
	}
	flag, sizes := "size", []int64{m.size}
	if m.sweep != nil {
		flag, sizes = "sweep", m.sweep
	}
	if sizes[len(sizes)-1] > 1<<30 {
		return nil, fmt.Errorf("--%s: ops of more than 1 GiB are not measured", flag)
	}
	return sizes, nil
}

func (m *measureFlags) addVerdicts(cmd *cobra.Command) {
	m.verdicts = probe.DefaultRules()
	rules := &m.verdicts
	Var(cmd, &rules.FailUnder, "fail-under", partText(rules.FailUnder), "a pair fails below this `PERCENT` of the expected rate", parsePart)
	Var(cmd, &rules.WarnUnder, "warn-under", partText(rules.WarnUnder), "warn about a pair below this `PERCENT` of the expected rate", parsePart)
	Var(cmd, &m.outlier, "outlier", fmt.Sprintf("%s/%gx", partText(rules.OutlierUnder), rules.OutlierOver), "outliers: below this part of the best similar rate, or above this multiple of the latency (`PERCENT/MULTIPLEx`)", parseOutlier)
	intFlag(cmd, &rules.Retests, "retest", rules.Retests, 0, 10, "number `N` of times to measure bad pairs again, alone")
	Group(cmd, "Verdicts", "fail-under", "warn-under", "outlier", "retest")
	Offer(cmd, map[string]completer{
		"fail-under": Words("80%"), "warn-under": Words("90%"), "outlier": Words("93%/2.1x"),
	})
}

// rules checks the flags and gives what they say of verdicts.
func (m *measureFlags) rules() (probe.Rules, error) {
	r := m.verdicts
	r.OutlierUnder, r.OutlierOver = m.outlier.Under, m.outlier.Over
	if r.WarnUnder < r.FailUnder {
		return r, fmt.Errorf("--warn-under %s is below --fail-under %s", partText(r.WarnUnder), partText(r.FailUnder))
	}
	return r, nil
}

func (m *measureFlags) addPairs(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringArrayVar(&m.selected, "select", nil, "only pairs that match `FROM>TO`, or an endpoint NAME; * and ? are wildcards; repeatable")
	fl.BoolVar(&m.bidir, "bidir", false, "load both directions of each pair")
	wordFlag(cmd, &m.schedule, "schedule", plan.ByLink, "pairs at the same time share no `WHAT`: link or endpoint; serial: one at a time", []plan.Schedule{plan.ByLink, plan.ByEndpoint, plan.Serial})
	fl.StringVar(&m.contend, "contend", "", "all pairs that use `LINK` at the same time, to find its capacity")
	timeFlag(cmd, &m.maxDuration, "max-duration", 0, 0, unbounded, "start no round that would end after `TIME`; 0 for no limit")
	fl.BoolVar(&m.dryRun, "dry-run", false, "print the rounds with their time and bytes, but measure nothing")
	Group(cmd, pairsGroup, "select", "bidir", "schedule", "contend", "max-duration", "dry-run")
	Offer(cmd, map[string]completer{"max-duration": Words("1m", "10m")})
}

// pairsGroup is the heading of the flags that say what is measured.
const pairsGroup = "Pairs"

func (m *measureFlags) addOutput(cmd *cobra.Command) {
	fl := cmd.Flags()
	m.addPrinted(cmd)
	fl.StringVar(&m.report, "report", "", "also write the report as JSON to `FILE`")
	fl.StringVar(&m.events, "events", "", "also write events as JSON lines to `FILE` during the run")
	Group(cmd, "Output", "all", "out-file", "report", "events")
	fl.StringVar(&m.resume, "resume", "", "only pairs that are not in `FILE`, the report or events of an earlier run")
	Group(cmd, pairsGroup, "resume")
}

// addPrinted adds the flags of commands that print a report.
func (m *measureFlags) addPrinted(cmd *cobra.Command) {
	m.outFile.Add(cmd)
	cmd.Flags().BoolVar(&m.all, "all", false, "list every pair, all evidence and all notes")
}

// portFlags say how pairs of ports are measured.
type portFlags struct {
	transport string
	memory    plan.Where
}

func (p *portFlags) add(cmd *cobra.Command) {
	transports := []string{bench.Auto, "rdma", "tcp"}
	wordFlag(cmd, &p.transport, "transport", bench.Auto, "`TRANSPORT` between ports: "+either(transports)+"; auto uses RDMA if both ends have it", transports)
	wordFlag(cmd, &p.memory, "memory", plan.OnCPU, "`KIND` of memory to move between ports, nearest to each: cpu or gpu", []plan.Where{plan.OnCPU, plan.OnGPU})
	Group(cmd, pairsGroup, "transport", "memory")
}

// wanted is the transport that pathsel is asked for.
func (p *portFlags) wanted() pathsel.Transport {
	if p.transport == bench.Auto {
		return pathsel.Auto
	}
	return pathsel.Transport(p.transport)
}
