package machine

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/cpuset"
)

// option is one thing that a statement may say: set puts its value where it belongs, or
// says what is wrong with it.
type option struct {
	set  func(value string) error
	flag bool // it has no value
	many bool // it may stand more than once
}

// options are what one statement may say, by key. Reading a statement, changing it and the
// lists in errors go by them alone.
type options map[string]option

// and gives the options of both.
func (o options) and(more options) options {
	maps.Copy(o, more)
	return o
}

func (o options) known(t token) bool {
	_, ok := o[t.text]
	return ok && !t.quoted
}

// setting is an option as it stands in the text.
type setting struct{ key, value string }

// settings sorts the words of a statement out. It is false, after reporting, where they do not fit.
func (o options) settings(rest []token, report func(format string, args ...any)) (list []setting, ok bool) {
	for len(rest) > 0 {
		key := rest[0].text
		switch {
		case !o.known(rest[0]):
			report("unknown word %q%s", key, choices(slices.Collect(maps.Keys(o))))
			return nil, false
		case o[key].flag:
			list, rest = append(list, setting{key, ""}), rest[1:]
		case len(rest) < 2:
			report("%s wants a value", key)
			return nil, false
		default:
			list, rest = append(list, setting{key, rest[1].text}), rest[2:]
		}
	}
	return list, true
}

// choices ends a sentence about a word that is not known.
func choices(words []string) string {
	if len(words) == 0 {
		return "; nothing may"
	}
	slices.Sort(words)
	return "; there is " + strings.Join(words, ", ")
}

// words are a statement's words, sorted out.
type words struct {
	*stmt
	rep      *report
	args     []string
	settings []setting
}

// words sorts out the words of a statement that has these options. It is nil, after
// reporting, where they or what stands below do not fit.
func (s *stmt) words(o options, rep *report) *words {
	w := &words{stmt: s, rep: rep}
	form := statements[s.word]
	args := strings.Fields(form.args)
	required := len(args) - strings.Count(form.args, "[")
	rest := s.rest
	for len(rest) > 0 && len(w.args) < len(args) && (len(w.args) < required || !o.known(rest[0])) {
		w.args, rest = append(w.args, rest[0].text), rest[1:]
	}
	if len(w.args) < required {
		w.fail("%s wants %s", s.word, form.args)
		return nil
	}
	var ok bool
	if w.settings, ok = o.settings(rest, func(format string, args ...any) { w.fail(s.word+": "+format, args...) }); !ok {
		return nil
	}
	for i, x := range w.settings {
		if !o[x.key].many && slices.ContainsFunc(w.settings[:i], func(y setting) bool { return y.key == x.key }) {
			w.fail("%s: %s stands twice", s.word, x.key)
			return nil
		}
	}
	for _, kid := range s.kids {
		if below := strings.Fields(form.below); !slices.Contains(below, kid.word) {
			rep.add(kid.line, "%s cannot stand below %s%s", kid.word, s.word, choices(below))
			return nil
		}
	}
	return w
}

// labels name the arguments in errors; others are named as in the table, in small letters.
var labels = map[string]string{"BDF": "address", "DOMAIN:BUS": "address", "N": "node", "DST": "destination", "ERRNO": "error"}

// read is words whose arguments and options go where args and o say. It is false, after
// reporting, where the words do not fit or an argument makes no sense.
func (p *parser) read(s *stmt, args, o options) (w *words, ok bool) {
	if w = s.words(o, &p.rep); w == nil {
		return nil, false
	}
	ok = true
	for i, arg := range strings.Fields(statements[s.word].args)[:len(w.args)] {
		if opt, bound := args[arg]; bound {
			ok = w.put(cmp.Or(labels[arg], strings.ToLower(arg)), w.args[i], opt) && ok
		}
	}
	w.apply(o)
	return w, ok
}

func (w *words) apply(o options) {
	for _, x := range w.settings {
		w.put(x.key, x.value, o[x.key])
	}
}

// put gives one value to an option, and reports what is wrong with it.
func (w *words) put(what, value string, o option) bool {
	err := o.set(value)
	if err != nil {
		w.fail("%s: %s %v", w.word, what, err)
	}
	return err == nil
}

func (w *words) has(key string) bool {
	return slices.ContainsFunc(w.settings, func(x setting) bool { return x.key == key })
}

func (w *words) fail(format string, args ...any) { w.rep.add(w.line, format, args...) }

// full reports a list that may not grow.
func (w *words) full(have, most int) bool {
	if have >= most {
		w.fail("%s: more than %d such statements", w.word, most)
	}
	return have >= most
}

// The kinds of values. What makes no sense leaves the value as it was.

func want(value, what string) error { return fmt.Errorf("%q: want %s", value, what) }

// kind is an option of a value that parse reads.
func kind[T any](to *T, what string, parse func(string) (T, bool)) option {
	return option{set: func(s string) error {
		v, ok := parse(s)
		if !ok {
			return want(s, what)
		}
		*to = v
		return nil
	}}
}

// maybe is an option whose absence is nil.
func maybe[T any](to **T, of func(*T) option) option {
	return option{set: func(s string) error {
		var v T
		err := of(&v).set(s)
		if err == nil {
			*to = &v
		}
		return err
	}}
}

// list is an option of several values, with commas between them.
func list[T any](to *[]T, of func(*T) option) option {
	return option{set: func(s string) error {
		var all []T
		for part := range strings.SplitSeq(s, ",") {
			var v T
			if err := of(&v).set(part); err != nil {
				return err
			}
			all = append(all, v)
		}
		*to = all
		return nil
	}}
}

// repeated is an option that may stand several times.
func repeated[T any](to *[]T, of func(*T) option) option {
	return option{many: true, set: func(s string) error {
		var v T
		err := of(&v).set(s)
		if err == nil {
			*to = append(*to, v)
		}
		return err
	}}
}

func flag(to *bool) option {
	return option{flag: true, set: func(string) error { *to = true; return nil }}
}

func anything(to *string) option {
	return option{set: func(s string) error { *to = s; return nil }}
}

// text is anything but control characters.
func text(to *string) option {
	return option{set: func(s string) error {
		if len(s) > 1024 || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' }) {
			return want(s[:min(len(s), 40)], "a text of one line and at most 1024 bytes")
		}
		*to = s
		return nil
	}}
}

func matching(to *string, form *regexp.Regexp, what string) option {
	return kind(to, what, func(s string) (string, bool) { return s, form.MatchString(s) })
}

var (
	nameForm   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}$`) // what becomes a file's name
	macForm    = regexp.MustCompile(`^([0-9a-f]{2}:){5}[0-9a-f]{2}$`)
	ouiForm    = regexp.MustCompile(`^([0-9a-f]{2}:){2}[0-9a-f]{2}$`)
	pkeyForm   = regexp.MustCompile(`^0x[0-9a-f]{4}$`)
	guidForm   = regexp.MustCompile(`^([0-9a-f]{4}:){3}[0-9a-f]{4}$`)
	rootForm   = regexp.MustCompile(`^([0-9a-f]{4,8}):([0-9a-f]{2})$`)
	acpiForm   = regexp.MustCompile(`^([A-Za-z0-9_:-][A-Za-z0-9_.:-]*/){0,7}[A-Za-z0-9_:-][A-Za-z0-9_.:-]*$`)
	serialForm = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)
	migForm    = regexp.MustCompile(`^[A-Za-z0-9.-]{1,64}$`)
	laneForm   = regexp.MustCompile(`^(?:gen([1-7]))?(?:x(1|2|4|8|12|16|32))?$`)
)

func name(to *string) option { return matching(to, nameForm, "a name of letters, digits and . _ + -") }

func serial(to *string) option { return matching(to, serialForm, "letters, digits and -") }

// driver is a name, or none.
func driver(to *string) option {
	return option{set: func(s string) error {
		err := name(to).set(s)
		if *to == "none" {
			*to = ""
		}
		return err
	}}
}

func oneOf(to *string, words ...string) option {
	return kind(to, strings.Join(words, ", "), func(s string) (string, bool) { return s, slices.Contains(words, s) })
}

// number is an integer from lo to hi, decimal, or hexadecimal after 0x.
func number(to *int, lo, hi int) option {
	return kind(to, fmt.Sprintf("a number from %d to %d", lo, hi), func(s string) (int, bool) {
		n, err := strconv.ParseInt(s, 0, 64)
		return int(n), err == nil && n >= int64(lo) && n <= int64(hi)
	})
}

func maybeNumber(to **int, most int) option {
	return maybe(to, func(n *int) option { return number(n, 0, most) })
}

// numberOr is a decimal number up to most, or one word, as it stands.
func numberOr(to *string, word string, most int64) option {
	return kind(to, fmt.Sprintf("%s, or a number from 0 to %d", word, most), func(s string) (string, bool) {
		if s == word {
			return s, true
		}
		n, err := strconv.ParseInt(s, 10, 64)
		return strconv.FormatInt(n, 10), err == nil && n >= 0 && n <= most
	})
}

// hex is a hexadecimal number, with or without 0x.
func hex[T uint8 | uint16 | uint32](to *T, bits int) option {
	return kind(to, fmt.Sprintf("a hexadecimal number of %d bits", bits), func(s string) (T, bool) {
		n, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, bits)
		return T(n), err == nil
	})
}

// ids is "10de:2330".
func ids(to *idPair) option {
	return kind(to, "vendor:device in hexadecimal", func(s string) (idPair, bool) {
		left, right, _ := strings.Cut(s, ":")
		vendor, err1 := strconv.ParseUint(left, 16, 16)
		device, err2 := strconv.ParseUint(right, 16, 16)
		return idPair{uint16(vendor), uint16(device)}, err1 == nil && err2 == nil
	})
}

// size is a number of bytes: "80GiB", "512MiB".
func size(to *int64) option {
	return kind(to, "a whole number with KiB, MiB, GiB or TiB", func(s string) (int64, bool) {
		for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
			if digits, ok := strings.CutSuffix(s, unit); ok {
				n, err := strconv.ParseInt(digits, 10, 64)
				shift := 10 * (i + 1)
				return n << shift, err == nil && n >= 0 && n <= math.MaxInt64>>(shift+1)
			}
		}
		return 0, false
	})
}

// rate is a speed in one direction in bytes per second: "450GB/s".
func rate(to *topo.Rate) option {
	return kind(to, "a whole number with GB/s", func(s string) (topo.Rate, bool) {
		digits, ok := strings.CutSuffix(s, "GB/s")
		n, err := strconv.ParseInt(digits, 10, 32)
		return topo.Rate(n) * topo.GBPerSec, ok && err == nil && n > 0
	})
}

// lane is a PCIe generation and width; 0 is not said.
type lane struct{ gen, width int }

// or takes what l does not say from other.
func (l lane) or(other lane) lane {
	if l.gen == 0 {
		l.gen = other.gen
	}
	if l.width == 0 {
		l.width = other.width
	}
	return l
}

func lanes(to *lane) option {
	return kind(to, "genNxW, genN or xW with N up to 7 and W of 1, 2, 4, 8, 12, 16, 32", func(s string) (lane, bool) {
		m := laneForm.FindStringSubmatch(s)
		if m == nil || s == "" {
			return lane{}, false
		}
		gen, _ := strconv.Atoi(m[1])
		width, _ := strconv.Atoi(m[2])
		return lane{gen, width}.or(*to), true
	})
}

// cpus is a list such as "0-55,112-167".
func cpus(to *cpuset.Set) option {
	return option{set: func(s string) error {
		var all cpuset.Set
		for part := range strings.SplitSeq(s, ",") {
			set, err := cpuset.Parse(part)
			if err != nil || set.IsEmpty() || set.Last() >= maxCPU {
				return want(part, "CPUs as 0-7,16-23, below "+strconv.Itoa(maxCPU))
			}
			if all.Overlaps(set) {
				return want(s, "each CPU once")
			}
			all = all.Union(set)
		}
		*to = all
		return nil
	}}
}

// prefix is an address with its prefix length.
func prefix(to *netip.Prefix) option {
	return kind(to, "an address such as 10.0.0.1/24", func(s string) (netip.Prefix, bool) {
		p, err := netip.ParsePrefix(s)
		return p, err == nil && p.Addr().Zone() == ""
	})
}

// address is a function's, in the domain where it has none of its own.
func address(to *topo.BDF, domain uint32, what string) option {
	return kind(to, what, func(s string) (topo.BDF, bool) {
		b, err := topo.ParseBDF(s)
		if strings.Count(s, ":") == 1 {
			b.Domain = domain
		}
		return b, err == nil
	})
}

// rootBus is the domain and the bus of a root: "0000:15".
func rootBus(r *root) option {
	return option{set: func(s string) error {
		m := rootForm.FindStringSubmatch(s)
		if m == nil {
			return want(s, "DOMAIN:BUS as 0000:15")
		}
		domain, _ := strconv.ParseUint(m[1], 16, 32)
		bus, _ := strconv.ParseUint(m[2], 16, 8)
		r.domain, r.bus = uint32(domain), uint8(bus)
		return nil
	}}
}
