package probing

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/app/cli/command"
	"github.com/topoctl/topoctl/internal/app/probe/plan"
	"github.com/topoctl/topoctl/probe"
)

// measureFlags are the flags of a run of measurements as they are typed.
type measureFlags struct {
	selected               []string
	bw, lat                bool
	size, sweep            string
	warmup, duration       time.Duration
	ci                     string
	minSamples, maxSamples int
	bidir                  bool
	schedule, contend      string
	failUnder, warnUnder   string
	outlier                string
	retest                 int
	rateLimit              string
	maxDuration            time.Duration
	resume                 string
	dryRun                 bool
	outFile                string
	report, events         string
}

// The defaults of the measurements that flags do not name: samples of latency, and how
// often the time for the fewest samples a pair may take.
const (
	latencySamples = 1000
	pairTimeFactor = 4
)

var schedules = []string{string(plan.ByLink), string(plan.ByEndpoint), string(plan.Serial)}

func (m *measureFlags) add(cmd *cobra.Command, defaults probe.Spec) {
	fl := cmd.Flags()
	rules := probe.DefaultRules()
	fl.StringArrayVar(&m.selected, "select", nil, "measure only pairs `FROM>TO`, or those with an end NAME; * and ? stand for others; repeatable")
	fl.BoolVar(&m.bw, "bw", false, "measure bandwidth only")
	fl.BoolVar(&m.lat, "lat", false, "measure latency only")
	fl.StringVar(&m.size, "size", command.SizeText(defaults.SizesBytes[0]), "`SIZE` of one op")
	fl.StringVar(&m.sweep, "sweep", "", "measure sizes `FROM:TO:xFACTOR`, such as 4KiB:256MiB:x4; the largest is judged")
	fl.DurationVar(&m.warmup, "warmup", defaults.Warmup, "move bytes for `TIME` before each size, which does not count")
	fl.DurationVar(&m.duration, "duration", defaults.SampleTime*time.Duration(defaults.MinSamples), "take the first --min-samples of each size in `TIME`; more follow until --ci holds")
	fl.StringVar(&m.ci, "ci", command.PartText(defaults.CI), "enough samples are there when the 95 % interval is within `PART` of the mean")
	fl.IntVar(&m.minSamples, "min-samples", defaults.MinSamples, "take `N` samples at least")
	fl.IntVar(&m.maxSamples, "max-samples", defaults.MaxSamples, "take `N` samples at most")
	fl.BoolVar(&m.bidir, "bidir", false, "keep the other direction of each pair as busy meanwhile")
	fl.StringVar(&m.schedule, "schedule", schedules[0], "measure at the same time what shares no `WHAT`: "+command.Either(schedules)+", where serial is one pair at a time")
	fl.StringVar(&m.contend, "contend", "", "measure all pairs that cross `LINK` at the same time, to see what it carries")
	fl.StringVar(&m.failUnder, "fail-under", command.PartText(rules.FailUnder), "a pair FAILs below this `PART` of what is expected")
	fl.StringVar(&m.warnUnder, "warn-under", command.PartText(rules.WarnUnder), "it is a WARN below this `PART`")
	fl.StringVar(&m.outlier, "outlier", fmt.Sprintf("%s/%gx", command.PartText(rules.OutlierUnder), rules.OutlierOver), "an outlier has less than this part of the best rate of equal pairs, or more than this multiple of their smallest latency: `PART/MULTIPLEx`")
	fl.IntVar(&m.retest, "retest", rules.Retests, "measure bad pairs again alone, `N` times; 0 never")
	fl.StringVar(&m.rateLimit, "rate-limit", "", "no pair moves more than `RATE`, such as 10Gb/s")
	fl.DurationVar(&m.maxDuration, "max-duration", 0, "begin no round that would end after `TIME`; 0 measures all")
	fl.StringVar(&m.resume, "resume", "", "measure only what `FILE`, the report or the events of an earlier run, lacks")
	fl.BoolVar(&m.dryRun, "dry-run", false, "print the rounds, their time and bytes, and measure nothing")
	fl.StringVar(&m.outFile, "out-file", "", "write the output to `FILE`, in one step")
	fl.StringVar(&m.report, "report", "", "also write the report as JSON to `FILE`, in one step")
	fl.StringVar(&m.events, "events", "", "also write events as JSON lines to `FILE` while measuring")
	command.Offer(cmd, map[string]command.Completer{
		"schedule": command.Words(schedules...), "select": command.Words(), "size": command.Words("64KiB", "1MiB", "16MiB"), "sweep": command.Words("4KiB:16MiB:x4"),
		"warmup": command.Words(), "duration": command.Words("500ms", "2s"), "ci": command.Words("2.5%", "5%"), "min-samples": command.Words(), "max-samples": command.Words(), "contend": command.Words(),
		"fail-under": command.Words("80%"), "warn-under": command.Words("90%"), "outlier": command.Words("93%/2.1x"), "retest": command.Words(), "rate-limit": command.Words("1GB/s"),
		"max-duration": command.Words("1m", "10m"),
	})
}

// parse checks the flags and gives what measurements and verdicts go by.
func (m *measureFlags) parse(cmd *cobra.Command, defaults probe.Spec) (spec probe.Spec, rules probe.Rules, err error) {
	if err := command.NotEmpty(cmd, "size", "sweep", "ci", "contend", "fail-under", "warn-under", "outlier", "rate-limit", "resume", "out-file", "report", "events"); err != nil {
		return spec, rules, err
	}
	if slices.Contains(m.selected, "") {
		return spec, rules, errors.New("--select is empty")
	}
	for i, s := range m.selected {
		m.selected[i] = strings.ReplaceAll(s, "->", ">")
	}
	if err := m.exclude(cmd); err != nil {
		return spec, rules, err
	}
	if spec, err = m.spec(cmd, defaults); err != nil {
		return spec, rules, err
	}
	rules, err = m.rules()
	return spec, rules, err
}

// exclude refuses flags that do not go together.
func (m *measureFlags) exclude(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	if err := command.CheckWords("schedule", []string{m.schedule}, schedules); err != nil {
		return err
	}
	for _, pair := range [][2]string{{"size", "sweep"}, {"bw", "lat"}} {
		if changed(pair[0]) && changed(pair[1]) {
			return fmt.Errorf("--%s and --%s exclude each other", pair[0], pair[1])
		}
	}
	for _, name := range []string{"size", "sweep", "duration", "ci", "min-samples", "max-samples", "rate-limit", "bidir"} {
		if m.lat && changed(name) {
			return fmt.Errorf("--%s has no effect with --lat", name)
		}
	}
	if m.dryRun {
		for _, name := range []string{"report", "events"} {
			if changed(name) {
				return fmt.Errorf("--%s has no effect with --dry-run", name)
			}
		}
	}
	files := []string{m.outFile, m.report, m.events}
	for i, f := range files {
		if f != "" && f != "/dev/full" && slices.Contains(files[:i], f) {
			return fmt.Errorf("two outputs would go to %s", f)
		}
	}
	return nil
}

func (m *measureFlags) spec(cmd *cobra.Command, defaults probe.Spec) (probe.Spec, error) {
	s := defaults
	s.Warmup, s.MinSamples, s.MaxSamples, s.LatencySamples = m.warmup, m.minSamples, m.maxSamples, latencySamples
	changed := cmd.Flags().Changed
	switch {
	case m.minSamples < 2 || m.minSamples > 1000:
		return s, fmt.Errorf("--min-samples %d: want 2 to 1000", m.minSamples)
	case !changed("max-samples") && m.maxSamples < m.minSamples:
		s.MaxSamples = m.minSamples
	case m.maxSamples < m.minSamples || m.maxSamples > 1000:
		return s, fmt.Errorf("--max-samples %d: want --min-samples (%d) to 1000", m.maxSamples, m.minSamples)
	}
	s.SampleTime = m.duration / time.Duration(m.minSamples)
	switch {
	case m.warmup < 0 || m.warmup > time.Hour:
		return s, fmt.Errorf("--warmup %s: want 0 to 1h", m.warmup)
	case s.SampleTime < time.Millisecond || m.duration > time.Hour:
		return s, fmt.Errorf("--duration %s: want %s (1 ms for each of --min-samples) to 1h", m.duration, time.Duration(m.minSamples)*time.Millisecond)
	case m.maxDuration < 0:
		return s, fmt.Errorf("--max-duration %s: want 0 or more", m.maxDuration)
	}
	var err error
	if s.CI, err = command.ParsePart(m.ci); err != nil {
		return s, fmt.Errorf("--ci %w", err)
	}
	if err := m.sizes(&s); err != nil {
		return s, err
	}
	if m.rateLimit != "" {
		if s.RateLimit, err = command.ParseRate(m.rateLimit); err != nil {
			return s, fmt.Errorf("--rate-limit %w", err)
		}
	}
	// Samples that do not settle are taken to --max-samples, but not for ever.
	each := m.warmup + pairTimeFactor*m.duration
	s.PairTime = time.Duration(len(s.SizesBytes))*each + m.warmup + time.Second
	return s, nil
}

// sizes fills in what is measured of each pair.
func (m *measureFlags) sizes(s *probe.Spec) error {
	switch {
	case m.lat:
		s.SizesBytes = []int64{}
	case m.sweep != "":
		sizes, err := command.ParseSweep(m.sweep)
		if err != nil {
			return fmt.Errorf("--sweep %w", err)
		}
		s.SizesBytes = sizes
	default:
		size, err := command.ParseBytes(m.size)
		if err != nil {
			return fmt.Errorf("--size %w", err)
		}
		s.SizesBytes = []int64{size}
	}
	if m.bw {
		s.LatencySamples = 0
	}
	const most = 1 << 30
	if n := len(s.SizesBytes); n > 0 && s.SizesBytes[n-1] > most {
		return fmt.Errorf("--%s: ops of more than 1 GiB are not measured", map[bool]string{true: "sweep", false: "size"}[m.sweep != ""])
	}
	return nil
}

func (m *measureFlags) rules() (probe.Rules, error) {
	r := probe.Rules{Retests: m.retest}
	var err error
	for _, x := range []struct {
		flag, text string
		to         *float64
	}{{"fail-under", m.failUnder, &r.FailUnder}, {"warn-under", m.warnUnder, &r.WarnUnder}} {
		if *x.to, err = command.ParsePart(x.text); err != nil {
			return r, fmt.Errorf("--%s %w", x.flag, err)
		}
	}
	if r.OutlierUnder, r.OutlierOver, err = command.ParseOutlier(m.outlier); err != nil {
		return r, fmt.Errorf("--outlier %w", err)
	}
	switch {
	case r.WarnUnder < r.FailUnder:
		return r, fmt.Errorf("--warn-under %s is below --fail-under %s", m.warnUnder, m.failUnder)
	case m.retest < 0 || m.retest > 10:
		return r, fmt.Errorf("--retest %d: want 0 to 10", m.retest)
	}
	return r, nil
}
