// Size prints how large each room of the module is: go run ./test/size.
package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// size is that of a room. Lines are those of files of Go, comments and blank ones included.
type size struct{ product, tests, packages, binaries, exported int }

// packages are those of one folder: its own, and the one of its external tests.
type packages struct{ product, tests, exported int }

func main() {
	all := map[string]*packages{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || len(d.Name()) > 1 && d.Name()[0] == '.') {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		return add(all, path)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
	rooms, sum := map[string]*size{}, &size{}
	for dir, p := range all {
		r := rooms[room(dir)]
		if r == nil {
			r = &size{}
			rooms[room(dir)] = r
		}
		for _, s := range []*size{r, sum} {
			s.product, s.tests, s.packages, s.exported = s.product+p.product, s.tests+p.tests, s.packages+1, s.exported+p.exported
			if p.tests > 0 && !kit(dir) {
				s.binaries++
			}
		}
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "lines\ttests\tpackages\ttest binaries\texported\t  room")
	for _, name := range slices.SortedFunc(maps.Keys(rooms), func(a, b string) int { return cmp.Compare(rooms[b].product, rooms[a].product) }) {
		rooms[name].print(out, name)
	}
	sum.print(out, "all")
	_ = out.Flush()
}

func (s *size) print(out *tabwriter.Writer, name string) {
	fmt.Fprintf(out, "%d\t%d\t%d\t%d\t%d\t  %s\n", s.product, s.tests, s.packages, s.binaries, s.exported, name)
}

// room is the top-level folder of a package; of internal, the folder below it.
func room(dir string) string {
	parts := strings.Split(dir, "/")
	if parts[0] == "internal" && len(parts) > 1 {
		return "internal/" + parts[1]
	}
	return parts[0]
}

// kit says whether a package is there for tests alone.
func kit(dir string) bool {
	first, _, _ := strings.Cut(dir, "/")
	return first == "test" || first == "testkit" || strings.HasSuffix(dir, "test") || strings.HasSuffix(dir, "fake") || strings.HasSuffix(dir, "faulty") || strings.HasSuffix(dir, "gpucheck")
}

func add(all map[string]*packages, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	dir := filepath.ToSlash(filepath.Dir(path))
	p := all[dir]
	if p == nil {
		p = &packages{}
		all[dir] = p
	}
	lines := bytes.Count(data, []byte("\n"))
	if kit(dir) || strings.HasSuffix(path, "_test.go") {
		p.tests += lines
		return nil
	}
	p.product += lines
	if strings.Contains("/"+dir+"/", "/internal/") || strings.HasPrefix(dir, "cmd/") || strings.HasPrefix(dir, "examples/") {
		return nil // other modules cannot import it
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, data, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() {
				p.exported++
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						p.exported++
					}
				case *ast.ValueSpec:
					for _, n := range s.Names {
						if n.IsExported() {
							p.exported++
						}
					}
				}
			}
		}
	}
	return nil
}
