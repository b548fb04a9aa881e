package picture

import (
	"bytes"
	"io"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/units"
)

// Theme is the set of colours of an SVG.
type Theme string

// The themes. Auto, which the empty string means too, is light and turns dark
// where the viewer prefers it (prefers-color-scheme).
const (
	ThemeAuto  Theme = "auto"
	ThemeLight Theme = "light"
	ThemeDark  Theme = "dark"
)

// Themes lists the themes, for flags and completion.
func Themes() []string { return []string{string(ThemeAuto), string(ThemeLight), string(ThemeDark)} }

// Options say how a diagram is drawn. The zero value is right for most uses.
type Options struct {
	// Units are the units of rates; Auto prints ports in Gb/s, links in GB/s.
	Units units.System
	// Theme are the colours of an SVG. DOT has one set.
	Theme Theme
}

// SVG draws a derived topology as one SVG image without outside parts. The
// same topology and options give the same bytes.
func SVG(w io.Writer, t *topo.Topology, o Options) error {
	colors, err := palettesOf(o.Theme)
	if err != nil {
		return err
	}
	s := newScene(t, o)
	s.arrange()
	p := svgPrinter{colors: colors}
	p.scene(s)
	return write(w, &p.out, "SVG")
}

// DOT writes a derived topology in the language of Graphviz: sockets and NUMA
// nodes are clusters, switches and devices are nodes, links are edges.
func DOT(w io.Writer, t *topo.Topology, o Options) error {
	p := dotPrinter{}
	p.scene(newScene(t, o))
	return write(w, &p.out, "DOT")
}

func write(w io.Writer, out *bytes.Buffer, what string) error {
	if _, err := out.WriteTo(w); err != nil {
		return pkgerr.Errorf("diagram", "write %s: %w", what, err)
	}
	return nil
}
