package imports

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Every file of the programs that runs another program, changes a file or makes a
// TLS configuration is in the review of SECURITY.md, under that heading, and the
// review names no other file.
func TestSecurityReview(t *testing.T) {
	text, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	reviewed := map[string]map[string]bool{}
	for _, section := range strings.Split(string(text), "\n### ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		body, _, _ = strings.Cut(body, "\n## ")
		reviewed[title] = map[string]bool{}
		for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+\\.go)`").FindAllStringSubmatch(body, -1) {
			reviewed[title][m[1]] = true
		}
	}
	found := map[string]map[string]bool{"Programs that are run": {}, "Files that are written": {}, "TLS": {}}
	for _, p := range list(t, "./cmd/...", "./daemon/...", "./pkg/...") {
		if roomOf(p.ImportPath).level == levelTest || below(p.ImportPath, module+"/cmd/internal") {
			continue
		}
		for _, name := range p.GoFiles {
			path := strings.TrimPrefix(p.ImportPath, module+"/") + "/" + name
			for _, title := range reviewable(t, filepath.Join(p.Dir, name)) {
				found[title][path] = true
			}
		}
	}
	for title, paths := range found {
		if len(paths) == 0 {
			t.Errorf("found nothing for %q", title)
		}
		for path := range paths {
			if !reviewed[title][path] {
				t.Errorf("SECURITY.md, %s: %s was not reviewed", title, path)
			}
		}
		for path := range reviewed[title] {
			if !paths[path] {
				t.Errorf("SECURITY.md, %s: %s does nothing of the kind", title, path)
			}
		}
	}
}

// reviewable are the headings that a file belongs under.
func reviewable(t *testing.T, file string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	imported := map[string]string{}
	var titles []string
	for _, i := range f.Imports {
		to, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		imported[to[strings.LastIndexByte(to, '/')+1:]] = to
		if to == "os/exec" {
			titles = append(titles, "Programs that are run")
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok {
			switch to := imported[x.Name]; {
			case writes(to, sel.Sel.Name), to == "os" && strings.HasPrefix(sel.Sel.Name, "O_") && sel.Sel.Name != "O_RDONLY":
				titles = append(titles, "Files that are written")
			case to == "crypto/tls" && sel.Sel.Name == "Config":
				titles = append(titles, "TLS")
			}
		}
		return true
	})
	return titles
}
