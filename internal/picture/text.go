package picture

import (
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
)

// clean makes a text from a foreign file fit for an image.
func clean(s string) string { return text.Cut(text.Printable(s), 160, text.Ellipsis) }

// span names many things in short: "mlx5_0 .. mlx5_7".
func span(names []string) string {
	names = slices.Clone(names)
	order := topo.NaturalCompare
	if len(names) > 0 && strings.Count(names[0], ":") == 2 { // PCI addresses, which are hexadecimal
		order = strings.Compare
	}
	slices.SortStableFunc(names, order)
	switch len(names) {
	case 0:
		return ""
	case 1:
		return names[0]
	case 2:
		return names[0] + ", " + names[1]
	}
	return names[0] + " .. " + names[len(names)-1]
}

// ranges writes numbers in short: "0-3, 6".
func ranges(numbers []int) string {
	numbers = slices.Clone(numbers)
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	var out []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		switch {
		case j == i:
			out = append(out, strconv.Itoa(numbers[i]))
		case j == i+1:
			out = append(out, strconv.Itoa(numbers[i]), strconv.Itoa(numbers[j]))
		default:
			out = append(out, strconv.Itoa(numbers[i])+"-"+strconv.Itoa(numbers[j]))
		}
		i = j + 1
	}
	return clean(strings.Join(out, ", "))
}

// mostRows is how many things of one kind a box tells one by one.
const mostRows = 8

// atMost cuts a list of rows to what a box has room for, and says how many are missing.
func atMost(rows []row, what string) []row {
	if len(rows) <= mostRows {
		return rows
	}
	rest := row{left: "and " + text.Plural(len(rows)-mostRows, what) + " more", style: rowFaint}
	for _, r := range rows[mostRows:] {
		rest.alert = rest.alert || r.alert
	}
	return append(rows[:mostRows:mostRows], rest)
}

// joined puts a middle dot between the parts that are not empty.
func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " · ")
}

// shortModel shortens a GPU's model by what the picture says anyway: the
// vendor, and what stands before a marketing name in brackets.
func shortModel(model string) string {
	if i := strings.LastIndexByte(model, '['); i >= 0 && strings.HasSuffix(model, "]") && len(model)-i > 2 {
		model = model[i+1 : len(model)-1]
	}
	for _, vendor := range []string{"NVIDIA ", "AMD "} {
		model = strings.TrimPrefix(model, vendor)
	}
	return model
}
