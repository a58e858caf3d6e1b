package imports

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// tags are those that the program is built with.
const tags = "-tags=containers_image_openpgp,exclude_graphdriver_btrfs"

// A goPackage is what `go list -json` says of a package.
type goPackage struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	CgoFiles   []string
	Imports    []string
}

func list(t *testing.T, args ...string) []goPackage {
	t.Helper()
	args = append([]string{"list", tags, "-json=ImportPath,Dir,GoFiles,CgoFiles,Imports"}, args...)
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go %s: %v: %s", strings.Join(args, " "), err, exit.Stderr)
		}
		t.Fatal(err)
	}
	var all []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		switch err := dec.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestDirections(t *testing.T) {
	packages := list(t, "./...")
	if len(packages) < 10 {
		t.Fatalf("%d packages: that is not the program", len(packages))
	}
	for _, p := range packages {
		for _, to := range p.Imports {
			if why := edgeProblem(p.ImportPath, to); why != "" {
				t.Errorf("%s imports %s: %s", p.ImportPath, to, why)
			}
		}
		if len(p.CgoFiles) > 0 {
			t.Errorf("%s: %v: the program is pure Go", p.ImportPath, p.CgoFiles)
		}
		for _, name := range p.GoFiles {
			checkCalls(t, p.ImportPath, filepath.Join(p.Dir, name))
		}
	}
}

// The program on the node holds no Kubernetes client, however it would come in.
func TestNodeProgramHasNoKubernetes(t *testing.T) {
	deps := list(t, "-deps", "./cmd/oneboot")
	if len(deps) < 100 {
		t.Fatalf("%d packages: that is not the program", len(deps))
	}
	for _, p := range deps {
		if kubernetes(p.ImportPath) {
			t.Errorf("cmd/oneboot contains %s", p.ImportPath)
		}
		if below(p.ImportPath, module) && roomOf(p.ImportPath).level == levelTest {
			t.Errorf("cmd/oneboot contains %s", p.ImportPath)
		}
	}
}

// checkCalls looks at every use of a function of os, syscall and unix.
func checkCalls(t *testing.T, pkg, file string) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	imported := map[string]string{}
	for _, i := range f.Imports {
		to, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		name := to[strings.LastIndexByte(to, '/')+1:]
		if i.Name != nil {
			name = i.Name.Name
		}
		if name == "." {
			t.Errorf("%s: a dot import of %s hides what is called", file, to)
		}
		imported[name] = to
	}
	ast.Inspect(f, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if !ok {
			return true
		}
		if to := imported[x.Name]; to != "" {
			if why := callProblem(pkg, to, sel.Sel.Name); why != "" {
				t.Errorf("%s: %s.%s: %s", fset.Position(sel.Pos()), to, sel.Sel.Name, why)
			}
		}
		return true
	})
}
