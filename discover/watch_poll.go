package discover

import (
	"hash/fnv"
	"io"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/internal/hosttree"
)

// poller compares files of this machine with what they were before. It reads no file for which
// the kernel asks a driver, so it cannot hang.
type poller struct {
	tree hosttree.Tree
	done func()
	was  map[string]uint64
}

// polled are the files that show each kind of change. A name that ends in a slash is a
// directory whose names are compared; "*" stands for each of those names.
var polled = []struct {
	what  string
	files []string
}{
	{"address", []string{"proc/net/fib_trie", "proc/net/if_inet6"}},
	{"drm", []string{"sys/class/drm/"}},
	{"infiniband", []string{"sys/class/infiniband/"}},
	{"link", []string{"sys/class/net/", "sys/class/net/*/operstate", "sys/class/net/*/mtu"}},
	{"nvme", []string{"sys/class/nvme/"}},
	{"pci", []string{"sys/bus/pci/devices/"}},
	{"route", []string{"proc/net/route", "proc/net/ipv6_route"}},
}

func newPoller(hostRoot string) (*poller, error) {
	p, closeTree, err := open(Options{HostRoot: hostRoot})
	if err != nil {
		return nil, err
	}
	return &poller{tree: p.tree, done: closeTree, was: map[string]uint64{}}, nil
}

func (p *poller) close() { p.done() }

// differences are the kinds of change since the last call; the first finds none.
func (p *poller) differences() []string {
	var changed []string
	for _, group := range polled {
		sum := fnv.New64a()
		var names []string
		for _, file := range group.files {
			dir, isDir := strings.CutSuffix(file, "/")
			above, below, each := strings.Cut(file, "*")
			switch {
			case isDir:
				names = p.names(dir)
				write(sum, names...)
			case each:
				for _, name := range names {
					write(sum, p.text(above+name+below))
				}
			default:
				write(sum, withoutUse(file, p.text(file)))
			}
		}
		if was, known := p.was[group.what]; known && was != sum.Sum64() {
			changed = append(changed, group.what)
		}
		p.was[group.what] = sum.Sum64()
	}
	return changed
}

// write adds texts to a hash, each with its end.
func write(to io.Writer, texts ...string) {
	for _, s := range texts {
		_, _ = io.WriteString(to, s+"\x00") // a hash takes everything
	}
}

// names and text are empty for what cannot be read.
func (p *poller) names(dir string) []string {
	entries, err := p.tree.ReadDir(dir)
	if err != nil {
		return nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

func (p *poller) text(file string) string {
	data, err := p.tree.ReadFile(file)
	if err != nil {
		return ""
	}
	return string(data)
}

// withoutUse takes the columns out of a table of routes that count its use.
// Source: net/ipv6/route.c (rt6_info_route), net/ipv4/fib_trie.c (fib_route_seq_show).
func withoutUse(file, text string) string {
	first := map[string]int{"proc/net/ipv6_route": 6, "proc/net/route": 4}[file]
	if first == 0 {
		return text
	}
	var out []string
	for line := range strings.Lines(text) {
		columns := strings.Fields(line)
		if len(columns) > first+2 {
			columns = slices.Delete(columns, first, first+2)
		}
		out = append(out, strings.Join(columns, " "))
	}
	return strings.Join(out, "\n")
}
