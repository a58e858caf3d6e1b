package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// codesIn are the values of the constants of a package whose names match.
func codesIn(t *testing.T, dir, names string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(names)
	var codes []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			kind := ""
			if id, ok := spec.Type.(*ast.Ident); ok {
				kind = id.Name
			}
			if lit, ok := spec.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING && name.MatchString(spec.Names[0].Name+" "+kind) {
				code, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				codes = append(codes, code)
			}
			return true
		})
	}
	return codes
}

func errorCodes(t *testing.T) []string {
	return append(codesIn(t, "pkg/osimage", ` Code$`), codesIn(t, "daemon", `^code[A-Z]`)...)
}

// The page names every check, proof, field and code that a verdict may hold, and
// no error code that none does.
func TestVerdictDocument(t *testing.T) {
	page, err := os.ReadFile("../../docs/verdict.md")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for _, name := range verdict.CheckNames() {
		want[string(name)] = true
	}
	errs := errorCodes(t)
	mco := append(codesIn(t, "pkg/verdict", `GateUnknown `), mcoCodes(t)...)
	proofs := codesIn(t, "pkg/verdict", ` Proof$`)
	if len(errs) < 30 || len(mco) < 15 || len(proofs) != 5 {
		t.Fatalf("found %d error codes, %d codes of mco, %d proofs", len(errs), len(mco), len(proofs))
	}
	for _, list := range [][]string{errs, mco, proofs, fieldsOf(reflect.TypeFor[verdict.Verdict]())} {
		for _, s := range list {
			want[s] = true
		}
	}
	for s := range want {
		if !strings.Contains(string(page), "`"+s+"`") {
			t.Errorf("docs/verdict.md does not name %s", s)
		}
	}
	known := map[string]bool{}
	for _, s := range errs {
		known[s] = true
	}
	_, table, _ := strings.Cut(string(page), "## Errors")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(table, -1) {
		if !known[m[1]] {
			t.Errorf("there is no error code %s", m[1])
		}
	}
}

// Each error that can decide has words of its own for the headline.
func TestErrorWords(t *testing.T) {
	words := errorWords()
	for _, code := range errorCodes(t) {
		if _, ok := words[code]; !ok && !strings.HasPrefix(code, "act-") {
			t.Errorf("no words for %s", code)
		}
		delete(words, code)
	}
	for code := range words {
		t.Errorf("there is no error code %s", code)
	}
}

// mcoCodes are those that pkg/verdict writes where it predicts.
func mcoCodes(t *testing.T) []string {
	t.Helper()
	source, err := os.ReadFile("../../pkg/verdict/mco.go")
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	for _, m := range regexp.MustCompile(`(?:\.add\(|Code: )"([a-z0-9-]+)"`).FindAllStringSubmatch(string(source), -1) {
		codes = append(codes, m[1])
	}
	return codes
}

// fieldsOf are the names of a type's fields in JSON, and of those below.
func fieldsOf(t reflect.Type) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var names []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			names = append(append(names, name), fieldsOf(f.Type)...)
		}
	}
	return names
}

// Every code of a refused fast reboot is in the table.
func TestFastRebootCodesDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/verdict.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range verdict.FastRebootCodes() {
		code = strings.TrimSuffix(code, verdict.FastRebootUnknownSuffix)
		if !strings.Contains(string(doc), "| `"+code+"` | ") {
			t.Errorf("docs/verdict.md has no row for %s", code)
		}
	}
}
