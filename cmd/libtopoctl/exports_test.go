//go:build cgo && linux

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/internal/bind"
)

func TestPanicIsAStatus(t *testing.T) {
	n := engines.Add(nil) // an engine whose methods panic
	defer engines.Remove(n)
	if got := golib_port(_Ctype_int64_t(n)); int64(got) != int64(bind.Internal) {
		t.Errorf("a status: %d, want %d", got, bind.Internal)
	}
	if got := golib_stats(_Ctype_int64_t(n), nil, 0); int64(got) != int64(bind.Internal) {
		t.Errorf("a length: %d, want %d", got, bind.Internal)
	}
	text := _Ctype_char(7)
	if got := golib_name(_Ctype_int64_t(n), &text, 1); int64(got) != int64(bind.Internal) {
		t.Errorf("a text: %d, want %d", got, bind.Internal)
	}
}

// TestEveryExportIsGuarded holds each function that C calls to what TestPanicIsAStatus tried.
func TestEveryExportIsGuarded(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "exports.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	exports := 0
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || !strings.HasPrefix(f.Name.Name, "golib_") || f.Name.Name == "golib_version" { // gives a constant
			continue
		}
		exports++
		for _, s := range f.Body.List {
			if !guards(s) {
				t.Errorf("%s: a statement outside of guarded, give, call, fill and fillText", f.Name)
			}
		}
	}
	if exports == 0 {
		t.Error("there are none")
	}
}

// guards says whether a statement is a call that recovers, or gives what one has set.
func guards(s ast.Stmt) bool {
	var x ast.Expr
	switch s := s.(type) {
	case *ast.ExprStmt:
		x = s.X
	case *ast.ReturnStmt:
		x = s.Results[0]
	}
	for {
		switch y := x.(type) {
		case *ast.Ident:
			return true
		case *ast.CallExpr:
			f, ok := y.Fun.(*ast.Ident)
			if ok {
				return slices.Contains([]string{"guarded", "give", "call", "fill", "fillText"}, f.Name)
			}
			x = y.Args[0] // C.int32_t(...)
		default:
			return false
		}
	}
}
