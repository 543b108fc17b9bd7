package queue

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// The files of the package stand on top of each other: what enqueues, what holds blocks,
// what writes the ends of their jobs, what does them, and the worker on top. Each uses
// types and functions of those below it only. The compiler does not know that, since they are one package.
func TestLayers(t *testing.T) {
	files, err := filepath.Glob("*.go")
	must(t, err)
	layer := func(file string) int {
		switch {
		case strings.HasPrefix(file, "worker"), file == "kind.go":
			return 4
		case strings.HasPrefix(file, "runner"):
			return 3
		case strings.HasPrefix(file, "outbox"), file == "delivery.go":
			return 2
		case strings.HasPrefix(file, "holder"), file == "core.go":
			return 1
		}
		return 0
	}
	set, parsed, declared := token.NewFileSet(), map[string]*ast.File{}, map[string]string{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, 0)
		must(t, err)
		parsed[name] = file
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					declared[d.Name.Name] = name
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if s, ok := s.(*ast.TypeSpec); ok {
						declared[s.Name.Name] = name
					}
				}
			}
		}
	}
	declared["WorkerOptions"] = "core.go"
	for name, file := range parsed {
		if name == "worker_options.go" {
			continue
		}
		local := localNames(file)
		var visit func(n ast.Node) bool
		visit = func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl: // not its name
				ast.Inspect(n.Type, visit)
				ast.Inspect(n.Body, visit)
				return false
			case *ast.SelectorExpr: // the rest is a field, a method, or something of another package
				ast.Inspect(n.X, visit)
				return false
			case *ast.KeyValueExpr:
				ast.Inspect(n.Value, visit)
				return false
			case *ast.Field:
				ast.Inspect(n.Type, visit)
				return false
			case *ast.Ident:
				if of := declared[n.Name]; of != "" && !local[n.Name] && layer(of) > layer(name) {
					t.Errorf("%s uses %s of %s, which stands above it", name, n.Name, of)
				}
			}
			return true
		}
		ast.Inspect(file, visit)
	}
	if len(parsed) < 50 || len(declared) < 200 {
		t.Fatalf("only %d files with %d declarations were found", len(parsed), len(declared))
	}
}

// localNames returns the names of the variables in a file's functions: they may hide what the package declares.
func localNames(file *ast.File) map[string]bool {
	names := map[string]bool{}
	add := func(all ...ast.Expr) {
		for _, x := range all {
			if id, ok := x.(*ast.Ident); ok {
				names[id.Name] = true
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				add(n.Lhs...)
			}
		case *ast.RangeStmt:
			add(n.Key, n.Value)
		case *ast.FuncType:
			for _, f := range n.Params.List {
				for _, id := range f.Names {
					add(id)
				}
			}
		case *ast.ValueSpec:
			for _, id := range n.Names {
				add(id)
			}
		}
		return true
	})
	return names
}
