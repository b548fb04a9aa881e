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

	"go.yaml.in/yaml/v3"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/cpuset"
	"github.com/topoctl/topoctl/internal/text"
)

// option is one key that something may have: the field where its value goes, and
// what values are like where the field's type does not say so.
type option struct {
	field    reflect.Value
	form     string
	required bool
}

// options are the keys of one thing. Reading it, changing it and the lists in errors go by them
// alone.
type options map[string]option

// tagged are the fields of structs that have a tag "key" or "needs", by the first word of it.
func tagged(structs ...any) options {
	o := options{}
	for _, x := range structs {
		v := reflect.ValueOf(x).Elem()
		for _, f := range reflect.VisibleFields(v.Type()) {
			needs := f.Tag.Get("needs")
			if key, form, _ := strings.Cut(cmp.Or(needs, f.Tag.Get("key")), " "); key != "" {
				o[key] = option{v.FieldByIndex(f.Index), form, needs != ""}
			}
		}
	}
	return o
}

// into is the option of one variable.
func into(variable any, form string) option {
	return option{field: reflect.ValueOf(variable).Elem(), form: form}
}

// read puts what stands in n into an option: keys into a struct, a list into a slice (where
// one thing alone is a list of one, and nothing is an empty list), a word into anything else.
func (r *report) read(n *yaml.Node, what string, o option) {
	v := o.field
	x, word := v.Addr().Interface(), false
	switch x.(type) {
	case *netip.Prefix, *cpuset.Set, interface{ set(string) error }:
		word = true
	}
	switch custom, is := x.(interface {
		read(r *report, n *yaml.Node, what string)
	}); {
	case is:
		custom.read(r, n, what)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		r.read(n, what, option{field: v.Elem(), form: o.form})
	case v.Kind() == reflect.Struct && !word:
		if pairs := r.pairs(n, what); pairs != nil {
			if x, ok := x.(interface{ preset() }); ok {
				x.preset()
			}
			if from := v.FieldByName("From"); from.IsValid() {
				from.Set(reflect.ValueOf(n))
			}
			r.readKeys(n, what, pairs, tagged(x))
		}
	case v.Kind() == reflect.Slice && !word:
		items := n.Content // none where nothing stands
		if n.Kind != yaml.SequenceNode && n.Tag != "!!null" {
			items = []*yaml.Node{n}
		}
		if len(items) > maxList {
			r.add(items[maxList], "%s: more than %d entries", what, maxList)
			return
		}
		list := reflect.MakeSlice(v.Type(), len(items), len(items))
		for i, item := range items {
			r.read(item, what, option{field: list.Index(i), form: o.form})
		}
		v.Set(list)
	case n.Kind != yaml.ScalarNode:
		r.add(n, "%s: want one word, no list and no mapping", what)
	default:
		if err := o.set(n.Value); err != nil {
			r.add(n, "%s %v", what, err)
		}
	}
}

// readKeys puts the values of keys where the options say, and reports what is unknown or missing.
func (r *report) readKeys(n *yaml.Node, what string, pairs []pair, o options) {
	prefix := what
	if prefix != "" {
		prefix += ": "
	}
	what = cmp.Or(what, "top level")
	given := map[string]bool{}
	for _, x := range pairs {
		given[x.key.Value] = true
		if opt, known := o[x.key.Value]; known {
			r.read(x.value, prefix+x.key.Value, opt)
		} else {
			r.add(x.key, "%s: unknown key %q%s", what, clip(x.key.Value), nearest(x.key.Value, slices.Collect(maps.Keys(o))))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(o)) {
		if o[key].required && !given[key] {
			r.add(n, "%s needs %s", what, key)
		}
	}
}

// set reads a value into the option's field. What makes no sense leaves the field as
// it was.
func (o option) set(s string) error {
	switch to := o.field.Addr().Interface().(type) {
	case *string:
		return setString(to, s, o.form)
	case *int:
		return setNumber(to, s, o.form)
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
		return setTo(to, s, "CPUs such as 0-7,16-23, below "+strconv.Itoa(maxCPU), func(s string) (cpuset.Set, bool) {
			set, err := cpuset.Parse(s)
			return set, err == nil && set.Last() < maxCPU
		})
	case interface{ set(s string) error }:
		return to.set(s)
	}
	return nil
}

// clip bounds what an error repeats.
func clip(value string) string { return text.Clip(value, 1024) }

func want(value, what string) error {
	return fmt.Errorf("%q: want %s", clip(value), what)
}

func setTo[T any](to *T, s, what string, parse func(string) (T, bool)) error {
	v, ok := parse(s)
	if !ok {
		return want(s, what)
	}
	*to = v
	return nil
}

// setNumber reads an integer, decimal, or hexadecimal after 0x, within a form such as "0..255".
func setNumber(to *int, s, form string) error {
	low, high, _ := strings.Cut(form, "..")
	lo, _ := strconv.Atoi(low)
	hi, _ := strconv.Atoi(high)
	return setTo(to, s, fmt.Sprintf("a number from %d to %d", lo, hi), func(s string) (int, bool) {
		n, err := strconv.ParseInt(s, 0, 64)
		return int(n), err == nil && int64(lo) <= n && n <= int64(hi)
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
	"pkey":      matching("a key such as 0x8001", `^0x[0-9a-f]{4}$`),
	"tc":        matching("unset, or a number from 0 to 255", `^(unset|1?[0-9]?[0-9]|2[0-4][0-9]|25[0-5])$`),
	"memlock":   matching("unlimited, or a number of bytes", `^(unlimited|0|[1-9][0-9]{0,17})$`),
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

// setString reads a text of a form: one of the table, or a choice ("a|b|c").
func setString(to *string, s, of string) error {
	f, named := forms[of]
	if !named {
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

// parseAddress reads a function's address; one without a domain is in the given domain.
func parseAddress(s string, domain uint32) (topo.BDF, bool) {
	b, err := topo.ParseBDF(s)
	if strings.Count(s, ":") == 1 {
		b.Domain = domain
	}
	return b, err == nil
}

// gpuIndex is a GPU's place in PCI order, or -1 for "all".
type gpuIndex int

func (g *gpuIndex) set(s string) error {
	return setTo(g, s, "all, or two GPUs such as [0, 1], in PCI order", func(s string) (gpuIndex, bool) {
		if s == "all" {
			return -1, true
		}
		n, err := strconv.ParseUint(s, 10, 12)
		return gpuIndex(n), err == nil
	})
}
