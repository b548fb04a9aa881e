package machine

import (
	"slices"
	"strings"
)

// vocab is what one statement may hold.
type vocab struct {
	args  []string // the words that come first; "[X]" may be left out
	keys  []string // options with a value
	flags []string // options without
	kids  []string // statements that may stand below
}

var (
	anyFunction = []string{"id", "sub", "rev", "class", "driver", "title", "link", "at", "numa", "acs"}
	partKeys    = []string{"id", "sub", "rev", "class", "driver", "title", "link", "memory", "cc", "layer",
		"gbps", "hca", "board", "fw", "gids", "sriov", "oui", "model", "bytes"}
	functions = []string{"bridge", "switch", "gpu", "nic", "nvme", "nvswitch", "device"}
	nicKeys   = []string{"rdma", "net", "gbps", "rate", "state", "lid", "sm-lid", "ip", "mac", "guid", "mtu", "ndev",
		"gids", "pkeys", "tc", "sriov", "vf-of", "phys-port", "phys-switch", "fw", "board"}
	gpuKeys = []string{"uuid", "serial", "nvml-index", "minor", "nvlink", "c2c", "c2c-rate", "memory-numa", "mig"}
)

// vocabs are the statements of the language, by their place in the tree.
var vocabs = map[string]vocab{
	"machine":    {args: []string{"NAME", "DESCRIPTION"}},
	"base":       {args: []string{"NAME"}},
	"source":     {args: []string{"TEXT"}},
	"host":       {keys: []string{"arch", "kernel", "vendor", "product", "virtual", "name", "iommu", "config", "cmdline", "memlock"}},
	"cpu":        {keys: []string{"vendor", "family", "model", "name", "threads", "siblings"}},
	"numa":       {args: []string{"N"}, keys: []string{"package", "cpus", "mem", "distance"}},
	"part":       {args: []string{"NAME", "KIND"}, keys: partKeys},
	"root":       {args: []string{"DOMAIN:BUS"}, keys: []string{"numa", "under"}, kids: append([]string{"port"}, functions...)},
	"nvidia":     {keys: []string{"driver", "cuda", "module"}},
	"nvlink":     {args: []string{"GPU", "GPU|COUNT", "[COUNT]"}},
	"xgmi":       {args: []string{"GPU", "GPU|COUNT", "[COUNT]"}},
	"p2p":        {args: []string{"GPU", "GPU|ANSWER", "[ANSWER]"}},
	"bond":       {args: []string{"NAME"}, keys: []string{"legs", "mode", "hash", "ip", "mtu"}},
	"vlan":       {args: []string{"NAME"}, keys: []string{"on", "id", "ip"}},
	"netdev":     {args: []string{"NAME"}, keys: []string{"kind", "ip"}},
	"softrdma":   {args: []string{"NAME"}, keys: []string{"driver", "on"}},
	"route":      {args: []string{"DST"}, keys: []string{"dev", "via", "metric"}},
	"module":     {args: []string{"NAME"}},
	"set":        {args: []string{"PATH", "VALUE"}},
	"remove":     {args: []string{"PATH"}},
	"link":       {args: []string{"PATH", "->", "TARGET"}},
	"move":       {args: []string{"PATH", "->", "TARGET"}},
	"unreadable": {args: []string{"PATH", "ERRNO"}},
	"port":       {args: []string{"BDF", "[PART]"}, keys: anyFunction, kids: functions},
	"switch":     {args: []string{"BDF", "PART"}, keys: anyFunction, kids: []string{"down", "device"}},
	"down":       {args: []string{"BDF", "[PART]"}, keys: anyFunction, kids: functions},
	"bridge":     {args: []string{"BDF", "PART"}, keys: anyFunction, kids: functions},
	"gpu":        {args: []string{"BDF", "PART"}, keys: slices.Concat(anyFunction, gpuKeys)},
	"nic":        {args: []string{"BDF", "PART"}, keys: slices.Concat(anyFunction, nicKeys), flags: []string{"ib", "eth"}},
	"nvme":       {args: []string{"BDF", "PART"}, keys: slices.Concat(anyFunction, []string{"name"})},
	"nvswitch":   {args: []string{"BDF", "PART"}, keys: anyFunction},
	"device":     {args: []string{"BDF", "PART"}, keys: anyFunction},
}

var (
	topLevel = []string{"machine", "base", "source", "host", "cpu", "numa", "part", "root", "nvidia", "nvlink", "xgmi", "p2p",
		"bond", "vlan", "netdev", "softrdma", "route", "module", "change", "set", "remove", "link", "move", "unreadable"}
	patchWords  = []string{"change", "set", "remove", "link", "move", "unreadable"}
	variantOnly = append([]string{"machine", "base", "source"}, patchWords...)
	// repeatable are the options that may stand more than once.
	repeatable = []string{"ip", "mig"}
)

// args are a statement's words, sorted out by its vocabulary.
type args struct {
	*stmt
	rep *report
	pos []string
	opt map[string][]string
}

// read sorts a statement's words; it gives nil, after reporting, where they
// do not fit.
func (s *stmt) read(rep *report) *args {
	v := vocabs[s.word]
	a := &args{stmt: s, rep: rep, opt: map[string][]string{}}
	required := 0
	for _, name := range v.args {
		if name[0] != '[' {
			required++
		}
	}
	rest := s.rest
	for len(rest) > 0 && len(a.pos) < len(v.args) && (len(a.pos) < required || rest[0].quoted || !v.option(rest[0].text)) {
		a.pos = append(a.pos, rest[0].text)
		rest = rest[1:]
	}
	if len(a.pos) < required {
		rep.add(s.line, "%s wants %s", s.word, strings.Join(v.args, " "))
		return nil
	}
	for len(rest) > 0 {
		key := rest[0].text
		switch {
		case rest[0].quoted || !v.option(key):
			rep.add(s.line, "%s: unknown word %q%s", s.word, key, v.choices())
			return nil
		case a.has(key) && !slices.Contains(repeatable, key):
			rep.add(s.line, "%s: %s stands twice", s.word, key)
			return nil
		case slices.Contains(v.flags, key):
			a.opt[key] = []string{""}
			rest = rest[1:]
		case len(rest) < 2:
			rep.add(s.line, "%s: %s wants a value", s.word, key)
			return nil
		default:
			a.opt[key] = append(a.opt[key], rest[1].text)
			rest = rest[2:]
		}
	}
	for _, kid := range s.kids {
		if !slices.Contains(v.kids, kid.word) {
			rep.add(kid.line, "%s cannot stand below %s%s", kid.word, s.word, choices(v.kids))
			return nil
		}
	}
	return a
}

func (v vocab) option(word string) bool {
	return slices.Contains(v.keys, word) || slices.Contains(v.flags, word)
}

func (v vocab) choices() string { return choices(slices.Concat(v.flags, v.keys)) }

// choices ends a sentence about a word that is not known.
func choices(words []string) string {
	if len(words) == 0 {
		return "; nothing may"
	}
	sorted := slices.Sorted(slices.Values(words))
	return "; there is " + strings.Join(sorted, ", ")
}
