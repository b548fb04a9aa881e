package export

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// namer makes names that a format allows. A name that fits stays as it is. Any other is cut to the allowed characters and
// gets a digest of the original, so that two names never become the same.
type namer struct {
	most  int
	also  string // what is allowed beside letters and digits
	lower bool
	given map[string]string // name to what it is for
}

// labels are values of Kubernetes' labels, objects the names of its objects, words are names in Slurm's files.
func labels() *namer  { return &namer{63, "-_.", false, map[string]string{}} }
func objects() *namer { return &namer{253, "-.", true, map[string]string{}} }
func words() *namer   { return &namer{200, "-_.", false, map[string]string{}} }

func alphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// name is the name for something called s.
func (n *namer) name(s string) string {
	ends := func(s string) string {
		return strings.TrimFunc(s, func(r rune) bool { return r > 0x7f || !alphanumeric(byte(r)) })
	}
	cased := s
	if n.lower {
		cased = strings.ToLower(s)
	}
	clean := []byte(cased)
	for i, c := range clean {
		if !alphanumeric(c) && strings.IndexByte(n.also, c) < 0 {
			clean[i] = '-'
		}
	}
	base := ends(string(clean))
	out := base
	const digest = 8
	for long := digest; out != s || len(out) > n.most || n.given[out] != "" && n.given[out] != s; long += digest {
		sum := sha256.Sum256([]byte(s))
		tail := hex.EncodeToString(sum[:])[:long]
		out = strings.TrimPrefix(ends(base[:min(len(base), n.most-long-1)])+"-"+tail, "-")
		if n.given[out] == "" || n.given[out] == s {
			break
		}
	}
	n.given[out] = s
	return out
}

// nodeName is what Kubernetes lets a node be called.
var nodeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// nodes are the hosts that can be nodes of Kubernetes; the others are told.
func nodes(hosts []string) (out, notes []string) {
	var odd []string
	for _, h := range hosts {
		if len(h) <= 253 && nodeName.MatchString(h) {
			out = append(out, h)
		} else {
			odd = append(odd, strconv.Quote(h))
		}
	}
	if len(odd) > 0 {
		notes = append(notes, "left out, because no node of Kubernetes is called so: "+strings.Join(odd, ", "))
	}
	return out, notes
}

// slurmName is a host's name that stands in Slurm's files without quotes.
var slurmName = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9_.]*$`)

// hostlist writes names as Slurm does: n[1-16,18].
func hostlist(names []string) string {
	type family struct{ prefix, suffix, width string }
	numbers := map[family][]int{}
	var order []family
	var rest []string
	split := regexp.MustCompile(`^(.*?)(\d{1,9})(\D*)$`)
	for _, name := range slices.Compact(slices.SortedFunc(slices.Values(names), topo.NaturalCompare)) {
		m := split.FindStringSubmatch(name)
		if m == nil {
			rest = append(rest, name)
			continue
		}
		f := family{prefix: m[1], suffix: m[3]}
		if strings.HasPrefix(m[2], "0") && len(m[2]) > 1 { // padded: the width counts
			f.width = strconv.Itoa(len(m[2]))
		}
		n, _ := strconv.Atoi(m[2])
		if padded := (family{f.prefix, f.suffix, strconv.Itoa(len(m[2]))}); f.width == "" && numbers[padded] != nil {
			f = padded // n10 after n09
		}
		if numbers[f] == nil {
			order = append(order, f)
		}
		numbers[f] = append(numbers[f], n)
	}
	var out []string
	for _, f := range order {
		width, _ := strconv.Atoi(f.width)
		list := numbers[f]
		slices.Sort(list)
		var ranges []string
		for i := 0; i < len(list); {
			j := i
			for j+1 < len(list) && list[j+1] == list[j]+1 {
				j++
			}
			r := fmt.Sprintf("%0*d", width, list[i])
			if j > i {
				r += fmt.Sprintf("-%0*d", width, list[j])
			}
			ranges, i = append(ranges, r), j+1
		}
		text := strings.Join(ranges, ",")
		if len(list) > 1 {
			text = "[" + text + "]"
		}
		out = append(out, f.prefix+text+f.suffix)
	}
	return strings.Join(append(out, rest...), ",")
}
