package redact

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Text gives a copy of any text (a file's content, a path) with what can be
// recognised replaced: MAC addresses, GUIDs and IPv6 addresses written with
// colons, UUIDs, identifiers of LVM, interface names that hold a MAC address or GUID,
// and those host names, serial numbers, IPv4 addresses and bare hexadecimal numbers
// that are known from the topology or the reports.
func (r *Redactor) Text(s []byte) []byte {
	text := string(s)
	for ; r != nil; r = r.next {
		text = r.text(r.uniqueIDLines(text))
	}
	return []byte(text)
}

var (
	uuidPattern   = regexp.MustCompile(`(?i)` + uuidForm)
	volumePattern = regexp.MustCompile(`(?i)^` + volumeForm + `$`)
	// addressPattern finds what may be an address; found decides. In order: a
	// UUID, an identifier of LVM, groups of hexadecimal digits between colons (perhaps
	// with an IPv4 address at the end), an IPv4 address, a bare number, perhaps at the
	// end of an interface's name (systemd's "enx" + MAC, rdma-core's "ibx" + GUID).
	addressPattern = regexp.MustCompile(`(?i)` + uuidForm + `|` + volumeForm +
		`|[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,19}(?:(?:\.[0-9]{1,3}){3})?` +
		`|[0-9]{1,3}(?:\.[0-9]{1,3}){3}` +
		`|(?:0x|(?:en|wl|ww|ib|roce|iw|opa)x)?[0-9a-f]{8,40}`)
)

const uuidForm = `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`

// volumeForm is that of LVM's identifiers: 32 letters and digits. udev writes "LVM PV" and
// one as the model of a drive. Source: LVM2 lib/uuid/uuid.c, udev/69-dm-lvm.rules.in.
const volumeForm = `[0-9a-z]{6}(?:-[0-9a-z]{4}){5}-[0-9a-z]{6}`

// uniqueIDLine is how the properties of the KFD topology tell the unique ID of
// an AMD GPU, and that of the group of GPUs between which there is xGMI.
var uniqueIDLine = regexp.MustCompile(`(?m)^(unique_id|hive_id) ([0-9]{1,20})$`)

func (r *Redactor) uniqueIDLines(s string) string {
	if !strings.Contains(s, "_id ") {
		return s
	}
	return uniqueIDLine.ReplaceAllStringFunc(s, func(line string) string {
		name, digits, _ := strings.Cut(line, " ")
		id, err := strconv.ParseUint(digits, 10, 64)
		if err != nil {
			return line
		}
		return name + " " + strconv.FormatUint(r.uniqueID(id), 10)
	})
}

// text replaces every kind of address, and in what is between them the literals.
func (r *Redactor) text(s string) string {
	if !mayHoldAddress(s) {
		return r.literal(s)
	}
	var out strings.Builder
	done := 0
	for _, m := range addressPattern.FindAllStringIndex(s, -1) {
		begin, end := m[0], m[1]
		if isColonRun(s[begin:end]) {
			begin, end = trimRun(s, begin, end)
		}
		if begin >= end || begin > 0 && isAlnum(s[begin-1]) || end < len(s) && isAlnum(s[end]) {
			continue
		}
		if c := r.found(s[begin:end], surrounding(s, begin, end)); c != s[begin:end] {
			out.WriteString(r.literal(s[done:begin]))
			out.WriteString(c)
			done = end
		}
	}
	if done == 0 {
		return r.literal(s)
	}
	out.WriteString(r.literal(s[done:]))
	return out.String()
}

// mayHoldAddress is a quick no for the many short words and numbers of sysfs:
// whatever addressPattern finds has two colons, three dots, six hyphens or eight
// hexadecimal digits.
func mayHoldAddress(s string) bool {
	colons, dots, hyphens, digits := 0, 0, 0, 0
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F':
			digits++
		case c == ':':
			colons, digits = colons+1, 0
		case c == '.':
			dots, digits = dots+1, 0
		case c == '-':
			hyphens, digits = hyphens+1, 0
		default:
			digits = 0
		}
		if colons == 2 || dots == 3 || hyphens == 6 || digits == 8 {
			return true
		}
	}
	return false
}

func isColonRun(s string) bool { return strings.Count(s, ":") >= 2 }

// trimRun takes from a run of groups what belongs to the text around it: a
// word before ("addr:02:..." and "node:02:...") and a colon after.
func trimRun(s string, begin, end int) (int, int) {
	if begin > 0 && isAlnum(s[begin-1]) {
		begin += strings.IndexByte(s[begin:end], ':') + 1
	}
	if begin < end && s[begin] == ':' && !strings.HasPrefix(s[begin:end], "::") {
		begin++
	}
	if begin < end && s[end-1] == ':' && !strings.HasSuffix(s[begin:end], "::") {
		end--
	}
	return begin, end
}

// surrounding gives the bytes before and after, zero at the ends.
func surrounding(s string, begin, end int) (around [2]byte) {
	if begin > 0 {
		around[0] = s[begin-1]
	}
	if end < len(s) {
		around[1] = s[end]
	}
	return around
}

func isAlnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// found gives the replacement of one match of addressPattern.
func (r *Redactor) found(s string, around [2]byte) string {
	switch {
	case isColonRun(s):
		return r.colonRun(s)
	case uuidPattern.MatchString(s):
		b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
		if err != nil {
			return s
		}
		return uuidString(r.uuid([16]byte(b)))
	case volumePattern.MatchString(s):
		n := fmt.Sprintf("%032d", r.volumes.number(s))
		return strings.Join([]string{n[:6], n[6:10], n[10:14], n[14:18], n[18:22], n[22:26], n[26:]}, "-")
	case strings.Contains(s, "."):
		a, err := netip.ParseAddr(s)
		c, known := r.known4[a]
		if err != nil || !known || around[0] == '.' {
			return s
		}
		return c.String()
	}
	return r.bareNumber(s)
}

// colonRun knows a run of hexadecimal groups by the count and size of them.
func (r *Redactor) colonRun(s string) string {
	groups := strings.Split(s, ":")
	size := len(groups[0])
	for _, g := range groups {
		if len(g) != size {
			size = 0
		}
	}
	b, _ := hex.DecodeString(strings.Join(groups, ""))
	switch {
	case size == 2 && len(b) == 6:
		m := r.mac([6]byte(b))
		return colons(m[:], 1)
	case size == 2 && len(b) == 8:
		return colons(guidBytes(r.guid(binary.BigEndian.Uint64(b))), 1)
	case size == 2 && len(b) == 20: // IP over InfiniBand: 4 bytes of flags and queue pair, then a GID
		gid := r.ip(netip.AddrFrom16([16]byte(b[4:]))).As16()
		return colons(append(b[:4:4], gid[:]...), 1)
	case size == 4 && len(b) == 8:
		return colons(guidBytes(r.guid(binary.BigEndian.Uint64(b))), 2)
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return s
	}
	if c := r.ip(a); c != a {
		return spellLike(c, s)
	}
	return s
}

// bareNumber replaces a hexadecimal number without colons: one that is known,
// or the end of an interface's name.
func (r *Redactor) bareNumber(s string) string {
	lower := strings.ToLower(s)
	x := strings.IndexByte(lower, 'x') + 1
	prefix, digits := s[:x], lower[x:]
	inName := x > 0 && prefix[0] != '0'
	if n, known := r.switchIDs.given[digits]; known {
		return prefix + switchIDPlaceholder(digits, n)
	}
	b, err := hex.DecodeString(digits)
	if err != nil {
		return s
	}
	switch len(b) {
	case 6:
		if _, known := r.macs.given[[6]byte(b)]; known || inName {
			m := r.mac([6]byte(b))
			return prefix + hex.EncodeToString(m[:])
		}
	case 8:
		g := binary.BigEndian.Uint64(b)
		if n, known := r.uniqueIDs.given[g]; known {
			return fmt.Sprintf("%s%016x", prefix, n)
		}
		_, known := r.guids.given[g]
		_, made := r.macs.given[macOf(g)]
		if known || inName || made && eui64(macOf(g)) == g {
			return prefix + hex.EncodeToString(guidBytes(r.guid(g)))
		}
	}
	return s
}

// literal replaces the literals in a text; of two that begin at one place the longer.
func (r *Redactor) literal(s string) string {
	lower := asciiLower(s)
	var out strings.Builder
	for done := 0; ; {
		next, begin := -1, len(s)
		for i, l := range r.literals {
			if at := l.find(lower, done); at >= 0 && at < begin {
				next, begin = i, at
			}
		}
		if next < 0 {
			if done == 0 {
				return s
			}
			return out.String() + s[done:]
		}
		l := r.literals[next]
		out.WriteString(s[done:begin])
		out.WriteString(l.new)
		done = begin + len(l.old)
	}
}

// find is the first place at or after from where the literal stands alone, -1 for none.
func (l literal) find(lower string, from int) int {
	for {
		i := strings.Index(lower[from:], l.old)
		if i < 0 {
			return -1
		}
		begin := from + i
		from = begin + len(l.old)
		if (begin == 0 || !isAlnum(lower[begin-1])) && (from == len(lower) || !isAlnum(lower[from])) {
			return begin
		}
	}
}

// literal is a string to replace wherever it stands between other characters
// than letters and digits, in upper or lower case.
type literal struct{ old, new string }

// asciiLower keeps every byte's place, which strings.ToLower does not.
func asciiLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// learnWords remembers the words of a name or model. A host that is called
// like a driver or a vendor must not make these unreadable.
func (r *Redactor) learnWords(s string) {
	for w := range strings.FieldsFuncSeq(asciiLower(s), func(c rune) bool { return c > 127 || !isAlnum(byte(c)) && c != '-' && c != '_' }) {
		r.words[w] = true
	}
}

// learnLiterals makes the list of what Text replaces as it stands: what is long
// enough, and odd enough, not to be meant otherwise.
func (r *Redactor) learnLiterals() {
	add := func(old, new string) {
		if old = asciiLower(old); !r.words[old] {
			r.literals = append(r.literals, literal{old, new})
		}
	}
	for host := range r.hosts.given {
		new := r.host(host)
		short, domain, _ := strings.Cut(host, ".")
		if len(short) >= 3 && !isDigits(short) {
			add(host, new)
			add(short, new)
		}
		if strings.Contains(domain, ".") {
			add(domain, "example.invalid")
		}
	}
	for s := range r.serials.given {
		if len(s) >= 10 || len(s) >= 6 && !isDigits(s) {
			add(s, r.serial(s))
		}
	}
	slices.SortFunc(r.literals, func(a, b literal) int {
		if len(a.old) != len(b.old) {
			return len(b.old) - len(a.old) // a whole name before its part
		}
		return strings.Compare(a.old, b.old)
	})
}

func isDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }
