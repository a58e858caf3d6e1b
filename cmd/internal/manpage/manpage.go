// Package manpage writes the man pages and shell completions of a program from
// its commands. It is for the build; the programs do not have it.
package manpage

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A Page is one man page in the language of man(7).
type Page struct {
	Name string // as oneboot-disk-check.1
	Text string
}

// Pages are those of root and of each command below it that help lists. The
// edition is the program's version; date is shown as it is.
func Pages(root *cobra.Command, edition, date string) []Page {
	pages := []Page{page(root, edition, date)}
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			pages = append(pages, Pages(c, edition, date)...)
		}
	}
	return pages
}

// title is a command's name as man pages have it: oneboot-disk-check.
func title(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

func page(cmd *cobra.Command, edition, date string) Page {
	cmd.InitDefaultHelpFlag()
	var r roff
	r.macro("TH", strings.ToUpper(title(cmd)), "1", date, edition, "oneboot")
	r.section("Name")
	r.line(escape(title(cmd)) + ` \- ` + escape(cmd.Short))
	r.section("Synopsis")
	for _, use := range synopsis(cmd) {
		r.paragraph()
		r.line(bold(cmd.CommandPath()) + escape(strings.TrimPrefix(use, cmd.CommandPath())))
	}
	description, exit := splitExit(cmd.Long)
	r.section("Description")
	if description == "" {
		description = cmd.Short + "."
	}
	r.prose(description)
	if cmd.HasAvailableSubCommands() {
		r.section("Commands")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				r.item(bold(c.Name()), c.Short)
			}
		}
	}
	r.section("Options")
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { r.option(f) })
	if exit != "" {
		r.section("Exit status")
		r.prose(exit)
	}
	if cmd.HasExample() {
		r.section("Examples")
		r.literal(strings.Split(cmd.Example, "\n"))
	}
	if related := related(cmd); len(related) > 0 {
		r.section("See also")
		r.line(strings.Join(related, ",\n"))
	}
	return Page{Name: title(cmd) + ".1", Text: r.String()}
}

// synopsis are the ways to call a command.
func synopsis(cmd *cobra.Command) []string {
	var uses []string
	if cmd.Runnable() {
		uses = append(uses, cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		uses = append(uses, cmd.CommandPath()+" COMMAND")
	}
	return uses
}

// splitExit takes the exit status out of a description that says it.
func splitExit(long string) (description, exit string) {
	description, exit, _ = strings.Cut(long, "Exit status: ")
	return strings.TrimSpace(description), strings.TrimSpace(exit)
}

// related are the pages of the command above and of those below.
func related(cmd *cobra.Command) []string {
	var pages []string
	if cmd.HasParent() {
		pages = append(pages, bold(title(cmd.Parent()))+"(1)")
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			pages = append(pages, bold(title(c))+"(1)")
		}
	}
	return pages
}

// roff is the text of a page.
type roff struct{ bytes.Buffer }

// line writes what is escaped already. A control character at its beginning
// would be one of roff's.
func (r *roff) line(escaped string) {
	if strings.HasPrefix(escaped, ".") || strings.HasPrefix(escaped, "'") {
		escaped = `\&` + escaped
	}
	r.WriteString(escaped + "\n")
}

func (r *roff) macro(name string, args ...string) {
	r.WriteString("." + name)
	for _, a := range args {
		fmt.Fprintf(r, ` "%s"`, strings.NewReplacer(`\`, `\e`, `"`, `\(dq`).Replace(a))
	}
	r.WriteString("\n")
}

func (r *roff) section(name string) { r.macro("SH", strings.ToUpper(name)) }

// paragraph begins one, which is not to be done twice and not below a heading.
func (r *roff) paragraph() {
	written := bytes.TrimSuffix(r.Bytes(), []byte("\n"))
	last := written[bytes.LastIndexByte(written, '\n')+1:]
	if !bytes.HasPrefix(last, []byte(".SH ")) && !bytes.Equal(last, []byte(".PP")) {
		r.macro("PP")
	}
}

// item is a tagged paragraph.
func (r *roff) item(tag, text string) {
	r.macro("TP")
	r.line(tag)
	r.line(escape(text))
}

func (r *roff) option(f *pflag.Flag) {
	value, usage := pflag.UnquoteUsage(f)
	tag := bold("--" + f.Name)
	if f.Shorthand != "" {
		tag = bold("-"+f.Shorthand) + ", " + tag
	}
	if value != "" {
		tag += `=\fI` + escape(value) + `\fR`
	}
	switch f.DefValue {
	case "", "false", "0", "0s", "[]":
	default:
		usage += " (default " + f.DefValue + ")"
	}
	r.item(tag, usage)
}

// prose sets paragraphs anew; lines that are set in stay as they are.
func (r *roff) prose(text string) {
	for _, paragraph := range strings.Split(text, "\n\n") {
		r.paragraph()
		lines := strings.Split(paragraph, "\n")
		for i := 0; i < len(lines); {
			from := i
			for i < len(lines) && strings.HasPrefix(lines[i], " ") {
				i++
			}
			if i > from {
				r.literal(lines[from:i])
				continue
			}
			r.line(escape(lines[i]))
			i++
		}
	}
}

func (r *roff) literal(lines []string) {
	r.paragraph()
	r.macro("nf")
	for _, l := range lines {
		r.line(escape(l))
	}
	r.macro("fi")
}

func bold(text string) string { return `\fB` + escape(text) + `\fR` }

// escape keeps text from being read as roff's, and its dashes as typed.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(text)
}
