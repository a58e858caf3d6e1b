// Package manpagetest holds a program's man pages and completions to its commands.
package manpagetest

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/oneboot/oneboot/cmd/internal/manpage"
)

// Check makes a program's pages and completions twice and looks at them: the same
// bytes, a page for each command with each of its flags, nothing that groff and
// mandoc object to, scripts that complete.
func Check(t *testing.T, newRoot func() *cobra.Command) {
	t.Helper()
	var archives [2]bytes.Buffer
	for i := range archives {
		if err := manpage.Archive(&archives[i], newRoot(), "v1.2.3", time.Unix(1_700_000_000, 0).UTC()); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archives[0].Bytes(), archives[1].Bytes()) {
		t.Error("two archives differ")
	}
	files := unpack(t, &archives[0])
	root := newRoot()
	root.InitDefaultHelpFlag()
	pages := 0
	var each func(cmd *cobra.Command)
	each = func(cmd *cobra.Command) {
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
		text, ok := files["share/man/man1/"+name+".1"]
		if !ok {
			t.Errorf("no page for %s", cmd.CommandPath())
			return
		}
		pages++
		checkPage(t, cmd, text)
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				each(c)
			}
		}
	}
	each(root)
	if len(files) != pages+3 {
		t.Errorf("%d files for %d pages and 3 shells", len(files), pages)
	}
	checkBash(t, root, files["share/bash-completion/completions/"+root.Name()])
	for _, name := range []string{"share/zsh/site-functions/_" + root.Name(), "share/fish/vendor_completions.d/" + root.Name() + ".fish"} {
		if !strings.Contains(files[name], "__complete") {
			t.Errorf("%s asks the program for nothing", name)
		}
	}
}

func unpack(t *testing.T, archive io.Reader) map[string]string {
	t.Helper()
	files := map[string]string{}
	for r := tar.NewReader(archive); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if head.ModTime.Unix() != 1_700_000_000 || head.Uid != 0 || head.Uname != "" || head.Mode != 0o644 {
			t.Errorf("%s: %+v", head.Name, head)
		}
		files[head.Name] = string(content)
	}
}

// checkPage has a page shown as man shows it, and looks for what help says.
func checkPage(t *testing.T, cmd *cobra.Command, text string) {
	t.Helper()
	shown := render(t, cmd.CommandPath(), text)
	lint := exec.Command("mandoc", "-T", "lint", "-W", "warning")
	lint.Stdin = strings.NewReader(text)
	if out, err := lint.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%s: mandoc: %v\n%s", cmd.CommandPath(), err, out)
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(shown, "--"+f.Name) {
			t.Errorf("%s: the page has no --%s", cmd.CommandPath(), f.Name)
		}
	})
	words := strings.Fields(cmd.Short + " " + cmd.Long + " " + cmd.Example)
	words = append(words, strings.Fields(cmd.UseLine())...)
	for _, w := range words {
		if !strings.Contains(shown, w) && w != "Exit" && w != "status:" {
			t.Errorf("%s: the page has no %q", cmd.CommandPath(), w)
		}
	}
}

// render is a page as plain text, one long line a paragraph.
func render(t *testing.T, name, text string) string {
	t.Helper()
	groff := exec.Command("groff", "-man", "-Tutf8", "-ww", "-rLL=2000n", "-P-c", "-P-b", "-P-o", "-P-u")
	groff.Stdin = strings.NewReader(text)
	var stderr bytes.Buffer
	groff.Stderr = &stderr
	out, err := groff.Output()
	if err != nil || stderr.Len() > 0 {
		t.Errorf("%s: groff: %v\n%s", name, err, stderr.String())
	}
	return string(out)
}

// checkBash has bash complete the first command. What bash-completion would do
// before is done here: words split at spaces.
func checkBash(t *testing.T, root *cobra.Command, script string) {
	t.Helper()
	first := root.Commands()[0].Name()
	name := root.Name()
	bash := exec.Command("bash", "-euo", "pipefail", "-c", script+`
_get_comp_words_by_ref() { cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=("${COMP_WORDS[@]}") cword=$COMP_CWORD; }
compopt() { :; }
`+name+`() { echo "asked: $*" >&2; printf '`+first+`\twhat it does\n:4\n'; }
COMP_WORDS=(`+name+` `+first[:2]+`) COMP_CWORD=1 COMP_LINE="`+name+` `+first[:2]+`" COMP_POINT=${#COMP_LINE} COMP_TYPE=9
__start_`+name+`
echo "reply: ${COMPREPLY[*]}"`)
	out, err := bash.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "reply: "+first) {
		t.Errorf("bash: %v\n%s", err, out)
	}
}
