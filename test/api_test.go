package test

import (
	"go/ast"
	"go/parser"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var quoted = regexp.MustCompile("`([^`]+)`")

// TestNames holds the table of names in docs/api.md to what the public packages export: all of it, and nothing else.
func TestNames(t *testing.T) {
	data, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(data), "## Names\n")
	section, _, _ = strings.Cut(section, "\n## ")
	listed := map[string]map[string]bool{} // names by the ends of packages' paths
	var rooms []string
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(cells[1], "---") || cells[1] == " package " {
			continue
		}
		if cells[1] = strings.TrimSpace(cells[1]); cells[1] == "the root" {
			rooms = []string{"."}
		} else if cells[1] != "" {
			rooms = nil
			for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
				rooms = append(rooms, strings.TrimPrefix(m[1], "..."))
			}
		}
		for _, room := range rooms {
			if listed[room] == nil {
				listed[room] = map[string]bool{}
			}
			for _, m := range quoted.FindAllStringSubmatch(cells[3], -1) {
				listed[room][m[1]] = true
			}
		}
	}
	stale := map[string]map[string]bool{}
	for room, names := range listed {
		stale[room] = maps.Clone(names)
		maps.DeleteFunc(stale[room], func(name string, _ bool) bool { return strings.Contains(name, ".") || name == "Err" })
	}
	eachFile(t, parser.SkipObjectResolution, func(pkg, path string, file *ast.File) {
		top, _, _ := strings.Cut(pkg, "/")
		if strings.Contains("/"+pkg+"/", "/internal/") || slices.Contains([]string{"cmd", "test", "testkit", "examples"}, top) || pkg == "probe/plan/plantest" {
			return
		}
		room := ""
		for r := range listed {
			if r == pkg || strings.HasPrefix(r, "/") && strings.HasSuffix(pkg, r) {
				room = r
			}
		}
		names, values := exported(file)
		for _, name := range names {
			if !listed[room][name] {
				t.Errorf("%s: %s is not in the table of names", pkg, name)
			}
		}
		for _, name := range append(names, values...) {
			delete(stale[room], name)
		}
	})
	for room, names := range stale {
		for name := range names {
			t.Errorf("docs/api.md: %s has no %s", room, name)
		}
	}
}

// exported are the types and functions of a file that others can use, and the constants and variables.
func exported(file *ast.File) (names, values []string) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.IsExported() {
				names = append(names, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						names = append(names, s.Name.Name)
					}
				case *ast.ValueSpec:
					for _, n := range s.Names {
						values = append(values, n.Name)
					}
				}
			}
		}
	}
	return names, values
}
