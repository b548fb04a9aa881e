package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/text"
)

// kinds puts hosts together that are meant to be alike, though something may be missing or broken on one of
// them.
func kinds(hosts []*Host) [][]*Host {
	return joined(hosts, (*Host).build, (*Host).like)
}

// joined groups elements that are alike. Elements with the same key are the same; the largest of these groups come first,
// and others join the first group that they are like.
func joined[T any](list []T, key func(T) string, alike func(a, b T) bool) [][]T {
	ways := group.By(list, key)
	slices.SortStableFunc(ways, func(a, b []T) int {
		return cmp.Or(len(b)-len(a), strings.Compare(key(a[0]), key(b[0])))
	})
	var out [][]T
	for _, same := range ways {
		i := slices.IndexFunc(out, func(others []T) bool { return alike(same[0], others[0]) })
		if i < 0 {
			i = len(out)
			out = append(out, nil)
		}
		out[i] = append(out[i], same...)
	}
	return out
}

// build is a text of all facts that decide whether hosts are alike.
func (h *Host) build() string {
	parts := h.Parts
	if parts == nil {
		parts = h.fewParts()
	}
	return fmt.Sprintf("%q", []any{h.format(), h.Arch, h.Vendor, h.Product, h.Virtual, h.CPUModel, h.linked(), fmt.Sprint(parts)})
}

// format is the other tool whose file describes the host, "" for topoctl itself. Files of one format lack the same facts.
func (h *Host) format() string {
	if h.tells() {
		return ""
	}
	return h.Origin
}

// like says whether two hosts are meant to be alike. Hosts of one product with GPUs of one make are. Virtual machines,
// whose product says nothing, and hosts without a product are alike if all but a few of their parts are the same.
func (h *Host) like(o *Host) bool {
	const few, most = 2, 0.15 // how many parts may differ, or which fraction of them
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	a, b := h.Parts, o.Parts
	if a == nil || b == nil {
		a, b = h.fewParts(), o.fewParts()
	}
	apart := func(sort string) bool {
		x, y := only(a, sort), only(b, sort)
		return len(x) > 0 && len(y) > 0 && !slices.ContainsFunc(x, func(part string) bool { return slices.Contains(y, part) })
	}
	switch {
	case h.format() != o.format() || differ(h.Arch, o.Arch) || differ(h.Vendor, o.Vendor) || differ(h.Product, o.Product) || apart("GPU "):
		return false
	case h.Product != "" && o.Product != "" && !h.isVirtual() && !o.isVirtual():
		return true
	case differ(h.CPUModel, o.CPUModel) || differ(h.linked(), o.linked()) || apart("network function "):
		return false
	}
	others, all := 0, 0
	for part := range union(a, b) {
		others, all = others+max(a[part], b[part])-min(a[part], b[part]), all+max(a[part], b[part])
	}
	return others <= few || float64(others) <= most*float64(all)
}

func (h *Host) isVirtual() bool { return h.Virtual != "" && h.Virtual != "none" }

// linked says whether its GPUs have links to each other, "" where that is not known.
func (h *Host) linked() string {
	said := ""
	for i := range h.GPUs {
		if n := h.GPUs[i].Links; n != nil && *n > 0 {
			return "some"
		} else if n != nil {
			said = "none"
		}
	}
	return said
}

// fewParts counts the parts that are also known from documents of earlier versions, which have no Parts.
func (h *Host) fewParts() map[string]int {
	out := map[string]int{"network functions": h.NICs, "NUMA nodes": len(h.NUMA)}
	for i := range h.GPUs {
		out["GPU "+h.GPUs[i].Model]++
	}
	return out
}

func union(a, b map[string]int) map[string]int {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// only lists the parts with a prefix, without the speed of their links.
func only(parts map[string]int, prefix string) []string {
	var out []string
	for part, n := range parts {
		if n > 0 && strings.HasPrefix(part, prefix) {
			id, _, _ := strings.Cut(part, " (")
			out = append(out, id)
		}
	}
	return out
}

// unlikeParts says what one host has more or fewer of than another: "drive controller 144d:a80a (gen4 x4): 7, 8 on the others".
func (h *Host) unlikeParts(o *Host, on string) []string {
	if h.Parts == nil || o.Parts == nil {
		return nil
	}
	var out []string
	for _, part := range slices.Sorted(maps.Keys(union(h.Parts, o.Parts))) {
		if n, m := h.Parts[part], o.Parts[part]; n != m {
			out = append(out, fmt.Sprintf("%s: %d, %d %s", part, n, m, on))
		}
	}
	return out
}

// kindName names a kind of hosts by their product, or else by their CPU and GPUs.
func (h *Host) kindName() string {
	name := strings.TrimSpace(h.Vendor + " " + h.Product)
	if h.Product != "" && !h.isVirtual() {
		return name
	}
	if h.Product == "" {
		name = strings.TrimSpace(h.Arch + " " + h.CPUModel)
	}
	if len(h.GPUs) > 0 {
		name += ", " + text.Plural(len(h.GPUs), strings.TrimSpace(h.GPUs[0].Model+" GPU"))
	}
	return strings.TrimPrefix(name, ", ")
}
