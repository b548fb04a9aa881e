package machine

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/cpuset"
	"github.com/topoctl/topoctl/internal/base/text"
)

// option is one thing that a statement may say: the field where its value goes, and
// what values are like where the field's type does not say so.
type option struct {
	field reflect.Value
	form  string
}

// options are what one statement may say, by key. Reading a statement, changing it and the
// lists in errors go by them alone.
type options map[string]option

// fields are those of a struct and of what it embeds. They are worked out once: a machine has a
// statement for each of its functions.
func fields(t reflect.Type) []reflect.StructField {
	if known, ok := visible.Load(t); ok {
		return known.([]reflect.StructField)
	}
	all := reflect.VisibleFields(t)
	visible.Store(t, all)
	return all
}

var visible sync.Map // reflect.Type to []reflect.StructField

// tagged are the fields of structs that have a tag, by the first word of it.
func tagged(tag string, structs ...any) options {
	o := options{}
	for _, x := range structs {
		v := reflect.ValueOf(x).Elem()
		for _, f := range fields(v.Type()) {
			if key, form, _ := strings.Cut(f.Tag.Get(tag), " "); key != "" {
				o[key] = option{v.FieldByIndex(f.Index), form}
			}
		}
	}
	return o
}

// into is the option of one variable.
func into(variable any, form string) option { return option{reflect.ValueOf(variable).Elem(), form} }

func (o options) known(t token) bool {
	_, ok := o[t.text]
	return ok && !t.quoted
}

// isFlag says whether the option has no value.
func (o option) isFlag() bool { return o.field.Kind() == reflect.Bool }

// isRepeated says whether the option may stand more than once.
func (o option) isRepeated() bool {
	switch o.field.Interface().(type) {
	case []string, []netip.Prefix:
		return true
	}
	return false
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
		case o[key].isFlag():
			list, rest = append(list, setting{key, ""}), rest[1:]
		case len(rest) < 2:
			report("%s needs a value", key)
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
		return "; nothing can"
	}
	slices.Sort(words)
	return "; allowed: " + strings.Join(words, ", ")
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
		w.fail("%s needs %s", s.word, form.args)
		return nil
	}
	var ok bool
	if w.settings, ok = o.settings(rest, func(format string, args ...any) { w.fail(s.word+": "+format, args...) }); !ok {
		return nil
	}
	for i, x := range w.settings {
		if !o[x.key].isRepeated() && slices.ContainsFunc(w.settings[:i], func(y setting) bool { return y.key == x.key }) {
			w.fail("%s: %s is given twice", s.word, x.key)
			return nil
		}
	}
	for _, kid := range s.kids {
		if below := strings.Fields(form.below); !slices.Contains(below, kid.word) {
			rep.add(kid.line, "%s cannot be below %s%s", kid.word, s.word, choices(below))
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

// readInto reads a statement into a struct whose tags say what goes where.
func (p *parser) readInto(s *stmt, to any) (w *words, ok bool) {
	return p.read(s, tagged("arg", to), tagged("key", to))
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

// set reads a value into the option's field. What makes no sense leaves the field as
// it was.
func (o option) set(s string) error {
	switch to := o.field.Addr().Interface().(type) {
	case *bool:
		*to = true
	case *string:
		return setString(to, s, o.form)
	case *int:
		return setNumber(to, s, o.form)
	case *[]int: // with blanks between them
		for word := range strings.FieldsSeq(s) {
			var n int
			if err := setNumber(&n, word, o.form); err != nil {
				return err
			}
			*to = append(*to, n)
		}
	case *uint8, *uint16, *uint32: // hexadecimal, with or without 0x
		bits := map[reflect.Kind]int{reflect.Uint8: 8, reflect.Uint16: 16, reflect.Uint32: 24}[o.field.Kind()] // a class has 24
		n, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, bits)
		if err != nil {
			return want(s, fmt.Sprintf("a hexadecimal number of %d bits", bits))
		}
		o.field.SetUint(n)
	case *int64:
		return setTo(to, s, "a whole number with KiB, MiB, GiB or TiB", parseSize)
	case *topo.Rate:
		return setTo(to, s, "a whole number with GB/s", parseRate)
	case *netip.Prefix:
		return setTo(to, s, "an address such as 10.0.0.1/24", func(s string) (netip.Prefix, bool) {
			p, err := netip.ParsePrefix(s)
			return p, err == nil && p.Addr().Zone() == ""
		})
	case *cpuset.Set:
		return setCPUs(to, s)
	case interface{ set(s string) error }:
		return to.set(s)
	default:
		return o.setElem(s)
	}
	return nil
}

// setElem sets what a pointer or one more element of a list is.
func (o option) setElem(s string) error {
	elem := reflect.New(o.field.Type().Elem())
	if err := (option{elem.Elem(), o.form}).set(s); err != nil {
		return err
	}
	if o.field.Kind() == reflect.Pointer {
		o.field.Set(elem)
	} else {
		o.field.Set(reflect.Append(o.field, elem.Elem()))
	}
	return nil
}

func want(value, what string) error {
	return fmt.Errorf("%q: want %s", text.Clip(value, 1024), what)
}

func setTo[T any](to *T, s, what string, parse func(string) (T, bool)) error {
	v, ok := parse(s)
	if !ok {
		return want(s, what)
	}
	*to = v
	return nil
}

// limits are those of a form such as "0..255".
func limits(form string) (lo, hi int64) {
	low, high, _ := strings.Cut(form, "..")
	lo, _ = strconv.ParseInt(low, 10, 64)
	hi, _ = strconv.ParseInt(high, 10, 64)
	return lo, hi
}

// setNumber reads an integer, decimal, or hexadecimal after 0x.
func setNumber(to *int, s, form string) error {
	lo, hi := limits(form)
	return setTo(to, s, fmt.Sprintf("a number from %d to %d", lo, hi), func(s string) (int, bool) {
		n, err := strconv.ParseInt(s, 0, 64)
		return int(n), err == nil && n >= lo && n <= hi
	})
}

// form is what a text may be, and the value that it then stands for.
type form struct {
	what  string
	parse func(string) (string, bool)
}

func valid(what string, ok func(string) bool) form {
	return form{what, func(s string) (string, bool) { return s, ok(s) }}
}

func matching(what, expr string) form { return valid(what, regexp.MustCompile(expr).MatchString) }

func oneOf(words []string) form {
	return valid(strings.Join(words, ", "), func(s string) bool { return slices.Contains(words, s) })
}

var forms = map[string]form{
	"name":      fileName,
	"mac":       matching("six bytes such as a0:88:c2:00:00:01", `^([0-9a-f]{2}:){5}[0-9a-f]{2}$`),
	"oui":       matching("three bytes such as a0:88:c2", `^([0-9a-f]{2}:){2}[0-9a-f]{2}$`),
	"guid":      matching("four groups such as a088:c203:0000:0001", `^([0-9a-f]{4}:){3}[0-9a-f]{4}$`),
	"acpi":      matching("a path below /sys/devices", `^([A-Za-z0-9_:-][A-Za-z0-9_.:-]*/){0,7}[A-Za-z0-9_:-][A-Za-z0-9_.:-]*$`),
	"serial":    matching("letters, digits and -", `^[A-Za-z0-9-]{1,64}$`),
	"mig":       matching("a profile such as 1g.10gb", `^[A-Za-z0-9.-]{1,64}$`),
	"bond mode": oneOf(bondModes),
	"bond hash": oneOf(bondHashes),
	"errno":     oneOf(slices.Sorted(maps.Keys(errnoByName))),
	"any":       valid("", func(string) bool { return true }),
	"text": valid("a text of one line and at most 1024 bytes", func(s string) bool {
		return len(s) <= 1024 && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' })
	}),
	"driver": {fileName.what, func(s string) (string, bool) {
		if s == "none" {
			return "", true
		}
		return fileName.parse(s)
	}},
	"function": valid("an address such as 18:00.0", func(s string) bool {
		_, err := topo.ParseBDF(s)
		return err == nil
	}),
	"address": valid("an address", func(s string) bool {
		_, err := netip.ParseAddr(s)
		return err == nil
	}),
	"destination": valid("default, or a prefix such as 10.0.0.0/8", func(s string) bool {
		_, err := netip.ParsePrefix(s)
		return err == nil || s == "default"
	}),
}

var fileName = matching("a name of letters, digits and . _ + -", `^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}$`)

// setString reads a text of a form: one of the table, a choice ("a|b|c"), or a word or
// a decimal number ("unset|0..255").
func setString(to *string, s, of string) error {
	f, named := forms[of]
	if word, numbers, either := strings.Cut(of, "|"); !named && either && strings.Contains(numbers, "..") {
		_, most := limits(numbers)
		f = form{fmt.Sprintf("%s, or a number from 0 to %d", word, most), func(s string) (string, bool) {
			if s == word {
				return s, true
			}
			n, err := strconv.ParseInt(s, 10, 64)
			return strconv.FormatInt(n, 10), err == nil && n >= 0 && n <= most
		}}
	} else if !named {
		f = oneOf(strings.Split(of, "|"))
	}
	return setTo(to, s, f.what, f.parse)
}

// parseSize reads a number of bytes: "80GiB", "512MiB".
func parseSize(s string) (int64, bool) {
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if digits, ok := strings.CutSuffix(s, unit); ok {
			n, err := strconv.ParseInt(digits, 10, 64)
			shift := 10 * (i + 1)
			return n << shift, err == nil && n >= 0 && n <= math.MaxInt64>>(shift+1)
		}
	}
	return 0, false
}

// parseRate reads a speed in one direction in bytes per second: "450GB/s".
func parseRate(s string) (topo.Rate, bool) {
	digits, ok := strings.CutSuffix(s, "GB/s")
	n, err := strconv.ParseInt(digits, 10, 32)
	return topo.Rate(n) * topo.GBPerSec, ok && err == nil && n > 0
}

// setCPUs reads a list such as "0-55,112-167".
func setCPUs(to *cpuset.Set, s string) error {
	var all cpuset.Set
	for part := range strings.SplitSeq(s, ",") {
		set, err := cpuset.Parse(part)
		if err != nil || set.IsEmpty() || set.Last() >= maxCPU {
			return want(part, "CPUs such as 0-7,16-23, below "+strconv.Itoa(maxCPU))
		}
		if all.Overlaps(set) {
			return want(s, "each CPU once")
		}
		all = all.Union(set)
	}
	*to = all
	return nil
}

// idPair is "10de:2330".
type idPair struct{ vendor, device uint16 }

func (p *idPair) set(s string) error {
	return setTo(p, s, "vendor:device in hexadecimal", func(s string) (idPair, bool) {
		left, right, _ := strings.Cut(s, ":")
		vendor, err1 := strconv.ParseUint(left, 16, 16)
		device, err2 := strconv.ParseUint(right, 16, 16)
		return idPair{uint16(vendor), uint16(device)}, err1 == nil && err2 == nil
	})
}

// lane is a PCIe generation and width: "gen5x16", "gen1", "x8"; 0 is not said.
type lane struct{ gen, width int }

var laneForm = regexp.MustCompile(`^(?:gen([1-7]))?(?:x(1|2|4|8|12|16|32))?$`)

// set keeps what the text does not say.
func (l *lane) set(s string) error {
	return setTo(l, s, "genNxW, genN or xW with N up to 7 and W of 1, 2, 4, 8, 12, 16, 32", func(s string) (lane, bool) {
		m := laneForm.FindStringSubmatch(s)
		if m == nil || s == "" {
			return lane{}, false
		}
		gen, _ := strconv.Atoi(m[1])
		width, _ := strconv.Atoi(m[2])
		return lane{gen, width}.or(*l), true
	})
}

// or takes what l does not say from other.
func (l lane) or(other lane) lane {
	return lane{cmp.Or(l.gen, other.gen), cmp.Or(l.width, other.width)}
}

// bus is a PCI bus: "0000:15".
type bus struct {
	domain uint32
	number uint8
}

// first is the address of the bus's first function.
func (b bus) first() topo.BDF { return topo.BDF{Domain: b.domain, Bus: b.number} }

func (b bus) String() string { return fmt.Sprintf("%04x:%02x", b.domain, b.number) }

var busForm = regexp.MustCompile(`^([0-9a-f]{4,8}):([0-9a-f]{2})$`)

func (b *bus) set(s string) error {
	m := busForm.FindStringSubmatch(s)
	if m == nil {
		return want(s, "DOMAIN:BUS such as 0000:15")
	}
	domain, _ := strconv.ParseUint(m[1], 16, 32)
	number, _ := strconv.ParseUint(m[2], 16, 8)
	*b = bus{uint32(domain), uint8(number)}
	return nil
}

// parseAddress reads a function's address, in the domain where it has none of its own.
func parseAddress(s string, domain uint32) (topo.BDF, bool) {
	b, err := topo.ParseBDF(s)
	if strings.Count(s, ":") == 1 {
		b.Domain = domain
	}
	return b, err == nil
}

// gpuIndex is "gpu0": a GPU's place in PCI order.
type gpuIndex int

func (g *gpuIndex) set(s string) error {
	return setTo(g, s, "gpu0, gpu1, ... in PCI order, or all", func(s string) (gpuIndex, bool) {
		n, err := strconv.ParseUint(strings.TrimPrefix(s, "gpu"), 10, 12)
		return gpuIndex(n), err == nil && strings.HasPrefix(s, "gpu")
	})
}

// names is a list with commas.
type names []string

func (l *names) set(s string) error {
	var all names
	for part := range strings.SplitSeq(s, ",") {
		var one string
		if err := setString(&one, part, "name"); err != nil {
			return err
		}
		all = append(all, one)
	}
	*l = all
	return nil
}

// pkeys are partition keys as sysfs writes them, no more than a port's table has.
type pkeys []string

var pkeysForm = regexp.MustCompile(`^0x[0-9a-f]{4}(,0x[0-9a-f]{4})*$`)

func (k *pkeys) set(s string) error {
	if !pkeysForm.MatchString(s) || len(s) > pkeyTable*len("0xffff,") {
		return want(s, "at most 128 keys such as 0xffff,0x8001")
	}
	*k = strings.Split(s, ",")
	return nil
}
