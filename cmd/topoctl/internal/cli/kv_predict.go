package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	kvlayout "github.com/topoctl/topoctl/internal/kv"

	"github.com/topoctl/topoctl/internal/kv/serve"
)

type predictOptions struct {
	servingFlags
	hostFlags                 []string
	prefillHosts, decodeHosts []string
	fabricFile                string
	nics, downs               []string
	compare                   bool
	prefixBytes               int64 // of each prefill instance, all ranks together; 0: nothing is kept
	setup, piece              time.Duration
}

const (
	maxInstances = 4096
	maxRanks     = 1024 // of an instance
)

// kvShape is how many instances of how many tensor ranks there are.
type kvShape struct{ instances, tp int }

// kvModes are the values of --mode and what they are to the serving system.
var kvModes = map[string]serve.Move{"push": serve.Push, "layers": serve.PushLayers, "pull": serve.Pull}

var kvModeNames = []string{"push", "layers", "pull"}

func parseKVMode(s string) (serve.Move, error) {
	return kvModes[s], known(s, kvModeNames)
}

func newPredictCmd(f *Env) *cobra.Command {
	opts := &predictOptions{servingFlags: servingFlags{Host: f.Host()}}
	cmd := newCommand(opts, "predict", "Predict the time to the first token on described hosts and networks")
	opts.add(cmd)
	return cmd
}

func (o *predictOptions) add(cmd *cobra.Command) {
	o.servingFlags.add(cmd, "`GPU` to model (default: those of the hosts)", "decode instances and tensor ranks of each (`NxtpN`), or none if prefill instances also decode", noDecode)
	fl := cmd.Flags()
	fl.StringArrayVar(&o.hostFlags, "host", nil, "name and description of a host (`NAME=FILE`, or NAME="+fixturePrefix+"NAME); repeatable")
	fl.StringVar(&o.fabricFile, "fabric", "", "`FILE` with the leaf and rail of each port, and uplinks (topoctl.fabric/v1)")
	fl.StringSliceVar(&o.prefillHosts, "prefill-hosts", nil, "`NAMES` of the hosts for prefill (default: the first)")
	fl.StringSliceVar(&o.decodeHosts, "decode-hosts", nil, "`NAMES` of the hosts for decode (default: the second, or the only one)")
	fl.StringSliceVar(&o.nics, "nics", nil, "use only the ports with these `NAMES`, on all hosts that have them, or HOST/PORT")
	fl.StringArrayVar(&o.downs, "down", nil, "take down the port `HOST/PORT`; repeatable")
	fl.BoolVar(&o.compare, "compare", false, "also run with an infinite network, the best single NIC and a random NIC")
	Var(cmd, &o.prefixBytes, "prefix-memory", "0", "memory (`SIZE`) in which each prefill instance keeps finished prompts, for prompts of a --trace that share a prefix (hash_ids); 0 for none", bytesOrNone)
	timeFlag(cmd, &o.setup, "setup-time", 0, 0, kvLongest, "`TIME` to start a transfer between two ranks, such as 50us")
	timeFlag(cmd, &o.piece, "piece-time", 0, 0, kvLongest, "`TIME` to post each contiguous piece of a transfer, such as 200ns")
	Offer(cmd, map[string]completer{"host": namedHost, "prefix-memory": Words("0", "16GiB", "1TiB")})
	mainFlags(cmd, "host", "nics", "down", "compare")
	Uses(cmd, "timeout", "quiet", "units")
	TakesLong(cmd)
	Formats(cmd, formatTable, formatJSON, formatSVG, formatHTML)
}

// namedHost offers the machines that ship with topoctl after NAME=.
func namedHost(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	name, _, named := strings.Cut(typed, "=")
	if !named {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return hostArgs(typed, name+"=")
}

func (o *predictOptions) parse(cmd *cobra.Command, _ []string) error {
	if err := cmp.Or(o.check(cmd), o.parseDecode(cmd)); err != nil {
		return err
	}
	if o.prefixBytes > 0 && !cmd.Flags().Changed("trace") {
		return withHint(errors.New("--prefix-memory has no effect without --trace"), "only prompts of a trace share prefixes (hash_ids)")
	}
	return nil
}

// kvLongest is the longest time that starting a transfer, or a piece of it, may take.
const kvLongest = time.Second

// noDecode is the value of --decode that has the instances of --prefill do both.
const noDecode = "none"

func (o *predictOptions) parseDecode(cmd *cobra.Command) (err error) {
	if o.decodeText != noDecode {
		if o.decodeShape, err = parseShape(o.decodeText); err != nil {
			return fmt.Errorf("--decode %w, or %s", err, noDecode)
		}
		return nil
	}
	return checkTogether(cmd, flagRule{"decode-hosts fabric mode nics down compare setup-time piece-time", idleWith, "decode=" + noDecode, ""})
}

func modelNames() []string {
	var out []string
	for _, m := range kvlayout.Models() {
		out = append(out, m.Name)
	}
	return out
}

var shapeForm = regexp.MustCompile(`^(?:([0-9]{1,5})x)?tp([0-9]{1,4})$`)

// parseShape reads "2xtp4", or "tp4" for one instance.
func parseShape(text string) (kvShape, error) {
	m := shapeForm.FindStringSubmatch(strings.ToLower(text))
	if m == nil {
		return kvShape{}, fmt.Errorf("%q: want instances and tensor ranks, such as 2xtp4", text)
	}
	n, err := strconv.Atoi(cmp.Or(m[1], "1"))
	tp, err2 := strconv.Atoi(m[2])
	if err := errors.Join(err, err2); err != nil {
		return kvShape{}, fmt.Errorf("%q: %w", text, err)
	}
	if n < 1 || n > maxInstances || tp < 1 || tp > maxRanks {
		return kvShape{}, fmt.Errorf("%q: want 1 to %d instances of 1 to %d ranks", text, maxInstances, maxRanks)
	}
	return kvShape{n, tp}, nil
}

func (s kvShape) String() string { return fmt.Sprintf("%dxtp%d", s.instances, s.tp) }

// parseSLO reads "ttft=500ms", "tpot=50ms", "e2e=3s".
func parseSLO(given []string) (kvlayout.SLO, error) {
	var slo kvlayout.SLO
	to := map[string]**int64{"ttft": &slo.TTFTNS, "tpot": &slo.TPOTNS, "e2e": &slo.E2ENS}
	for _, text := range given {
		name, limit, _ := strings.Cut(text, "=")
		at, known := to[strings.ToLower(strings.TrimSpace(name))]
		if !known {
			return slo, fmt.Errorf("%q: want ttft, tpot or e2e, and a time, such as ttft=500ms", text)
		}
		d, err := time.ParseDuration(strings.TrimSpace(limit))
		switch {
		case err != nil || d <= 0:
			return slo, fmt.Errorf("%q: want a time above 0 with its unit, such as %s=500ms", text, name)
		case *at != nil:
			return slo, fmt.Errorf("%q: %s is given twice", text, name)
		}
		ns := int64(d)
		*at = &ns
	}
	return slo, nil
}

// knownGPUs are the GPUs whose data sheets are known, by the names that drivers give them. What a name alone
// does not tell (memory, form) has no entry.
var knownGPUs = map[string]string{
	"NVIDIA A10": "A10", "NVIDIA A100-SXM4-40GB": "A100-40GB", "NVIDIA A100-SXM4-80GB": "A100-80GB",
	"NVIDIA H20": "H20", "NVIDIA H100 80GB HBM3": "H100", "NVIDIA H200": "H200",
}

func gpuNames() []string { return slices.Sorted(maps.Values(knownGPUs)) }
