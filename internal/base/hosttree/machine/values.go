package machine

import (
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The getters of args: an option that is not there gives the zero value (or
// nil, or the default); one that makes no sense is reported.

func (a *args) has(key string) bool { return len(a.opt[key]) > 0 }

func (a *args) bad(key, value, want string) {
	a.rep.add(a.line, "%s: %s %q: want %s", a.word, key, value, want)
}

// text is a value that may hold anything but control characters.
func (a *args) text(key, def string) string {
	if !a.has(key) {
		return def
	}
	v := a.opt[key][0]
	if len(v) > 1024 || strings.ContainsFunc(v, func(r rune) bool { return r < ' ' }) {
		a.bad(key, v[:min(len(v), 40)], "a text of one line and at most 1024 bytes")
		return def
	}
	return v
}

// nameForm is what becomes a file's name: no slash, colon or leading dot.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}$`)

func (a *args) name(key string) string {
	if !a.has(key) {
		return ""
	}
	return a.checkName(key, a.opt[key][0])
}

func (a *args) checkName(what, v string) string {
	if !nameForm.MatchString(v) {
		a.bad(what, v, "a name of letters, digits and . _ + -")
		return ""
	}
	return v
}

func (a *args) oneOf(key, def string, choices ...string) string {
	if !a.has(key) {
		return def
	}
	v := a.opt[key][0]
	if !slices.Contains(choices, v) {
		a.bad(key, v, strings.Join(choices, ", "))
		return def
	}
	return v
}

// number is an integer from lo to hi, decimal, or hexadecimal after 0x.
func (a *args) number(what, v string, lo, hi int64) (int64, bool) {
	n, err := strconv.ParseInt(v, 0, 64)
	if err != nil || n < lo || n > hi {
		a.bad(what, v, "a number from "+strconv.FormatInt(lo, 10)+" to "+strconv.FormatInt(hi, 10))
		return 0, false
	}
	return n, true
}

func (a *args) integer(key string, lo, hi int) *int {
	if !a.has(key) {
		return nil
	}
	n, ok := a.number(key, a.opt[key][0], int64(lo), int64(hi))
	if !ok {
		return nil
	}
	v := int(n)
	return &v
}

func (a *args) intOr(key string, lo, hi, def int) int {
	if v := a.integer(key, lo, hi); v != nil {
		return *v
	}
	return def
}

// countOr is a number from 0 to most in decimal, or one word, as it stands.
func (a *args) countOr(key, word string, most int64) string {
	if !a.has(key) || a.opt[key][0] == word {
		return strings.Join(a.opt[key], "")
	}
	n, err := strconv.ParseInt(a.opt[key][0], 10, 64)
	if err != nil || n < 0 || n > most {
		a.bad(key, a.opt[key][0], word+", or a number from 0 to "+strconv.FormatInt(most, 10))
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// pkeys is a list such as "0xffff,0x8001", as sysfs writes it.
func (a *args) pkeys(key string) []string {
	if !a.has(key) {
		return nil
	}
	list := strings.Split(a.opt[key][0], ",")
	for _, v := range list {
		if !pkeyForm.MatchString(v) || len(list) > pkeyTable {
			a.bad(key, a.opt[key][0], "at most 128 keys as 0xffff,0x8001")
			return nil
		}
	}
	return list
}

// hex is a hexadecimal number of so many bits, with or without 0x.
func (a *args) hex(key string, bits int) (uint32, bool) {
	if !a.has(key) {
		return 0, false
	}
	v := strings.TrimPrefix(a.opt[key][0], "0x")
	n, err := strconv.ParseUint(v, 16, bits)
	if err != nil {
		a.bad(key, v, "a hexadecimal number of "+strconv.Itoa(bits)+" bits")
		return 0, false
	}
	return uint32(n), true
}

// idPair is "10de:2330".
func (a *args) idPair(key string) (v, d uint16, ok bool) {
	if !a.has(key) {
		return 0, 0, false
	}
	left, right, _ := strings.Cut(a.opt[key][0], ":")
	x, err1 := strconv.ParseUint(left, 16, 16)
	y, err2 := strconv.ParseUint(right, 16, 16)
	if err1 != nil || err2 != nil {
		a.bad(key, a.opt[key][0], "vendor:device in hexadecimal")
		return 0, 0, false
	}
	return uint16(x), uint16(y), true
}

// bytes is a size: "80GiB", "512MiB".
func (a *args) bytes(key string) *int64 {
	if !a.has(key) {
		return nil
	}
	v := a.opt[key][0]
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		number, ok := strings.CutSuffix(v, unit)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if shift := 10 * (i + 1); err == nil && n >= 0 && n <= math.MaxInt64>>(shift+1) {
			n <<= shift
			return &n
		}
	}
	a.bad(key, v, "a whole number with KiB, MiB, GiB or TiB")
	return nil
}

// rate is a speed in one direction in bytes per second: "450GB/s".
func (a *args) rate(key string) *int64 {
	if !a.has(key) {
		return nil
	}
	number, ok := strings.CutSuffix(a.opt[key][0], "GB/s")
	n, err := strconv.ParseInt(number, 10, 32)
	if !ok || err != nil || n <= 0 {
		a.bad(key, a.opt[key][0], "a whole number with GB/s")
		return nil
	}
	n *= 1_000_000_000
	return &n
}

// lane is a PCIe generation and width; 0 is not said.
type lane struct{ gen, width int }

var laneForm = regexp.MustCompile(`^(?:gen([1-7]))?(?:x(1|2|4|8|12|16|32))?$`)

func (a *args) lane(key string) lane {
	if !a.has(key) {
		return lane{}
	}
	m := laneForm.FindStringSubmatch(a.opt[key][0])
	if m == nil || m[0] == "" {
		a.bad(key, a.opt[key][0], "genNxW, genN or xW with N up to 7 and W of 1, 2, 4, 8, 12, 16, 32")
		return lane{}
	}
	gen, _ := strconv.Atoi(m[1])
	width, _ := strconv.Atoi(m[2])
	return lane{gen, width}
}

// cpus is a list such as "0-55,112-167", sorted.
func (a *args) cpus(key string) []int {
	if !a.has(key) {
		return nil
	}
	var out []int
	for part := range strings.SplitSeq(a.opt[key][0], ",") {
		lo, hi, ranged := strings.Cut(part, "-")
		if !ranged {
			hi = lo
		}
		first, err1 := strconv.ParseUint(lo, 10, 16)
		last, err2 := strconv.ParseUint(hi, 10, 16)
		if err1 != nil || err2 != nil || last < first || last >= maxCPU {
			a.bad(key, part, "CPUs as 0-7,16-23, below "+strconv.Itoa(maxCPU))
			return nil
		}
		for c := first; c <= last; c++ {
			out = append(out, int(c))
		}
		if len(out) > maxCPU {
			break
		}
	}
	slices.Sort(out)
	if len(slices.Compact(slices.Clone(out))) != len(out) {
		a.bad(key, a.opt[key][0], "each CPU once")
	}
	return out
}

// prefixes are addresses with their prefix length.
func (a *args) prefixes(key string) []netip.Prefix {
	var out []netip.Prefix
	for _, v := range a.opt[key] {
		p, err := netip.ParsePrefix(v)
		if err != nil || p.Addr().Zone() != "" {
			a.bad(key, v, "an address such as 10.0.0.1/24")
			continue
		}
		out = append(out, p)
	}
	return out
}

var (
	macForm  = regexp.MustCompile(`^([0-9a-f]{2}:){5}[0-9a-f]{2}$`)
	pkeyForm = regexp.MustCompile(`^0x[0-9a-f]{4}$`)
	guidForm = regexp.MustCompile(`^([0-9a-f]{4}:){3}[0-9a-f]{4}$`)
)

func (a *args) form(key string, form *regexp.Regexp, want string) string {
	if !a.has(key) {
		return ""
	}
	if v := a.opt[key][0]; !form.MatchString(v) {
		a.bad(key, v, want)
		return ""
	}
	return a.opt[key][0]
}
