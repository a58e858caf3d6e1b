package manpage

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// Text that looks like roff's own language is text.
func TestPages(t *testing.T) {
	root := &cobra.Command{
		Use: "tool", Short: "Do `it` by a \\fB-dash",
		Long: ".SH is no section\n'nor this\n\n  .kept  as it is\n\nExit status: 0 done;\n1 not.",
		Run:  func(*cobra.Command, []string) {},
	}
	root.Flags().StringP("name", "n", "a\"b", "take `NAME`")
	root.AddCommand(&cobra.Command{Use: "sub THING", Short: "Do less", Example: "  tool sub x", Run: func(*cobra.Command, []string) {}},
		&cobra.Command{Use: "secret", Hidden: true, Run: func(*cobra.Command, []string) {}})
	var got []string
	for _, p := range Pages(root, "v1", "2026-01-02") {
		got = append(got, p.Name+"\n"+p.Text)
	}
	want := []string{`tool.1
.TH "TOOL" "1" "2026-01-02" "v1" "oneboot"
.SH "NAME"
tool \- Do \(gait\(ga by a \efB\-dash
.SH "SYNOPSIS"
\fBtool\fR [flags]
.PP
\fBtool\fR COMMAND
.SH "DESCRIPTION"
\&.SH is no section
\&'nor this
.PP
.nf
  .kept  as it is
.fi
.SH "COMMANDS"
.TP
\fBsub\fR
Do less
.SH "OPTIONS"
.TP
\fB\-h\fR, \fB\-\-help\fR
help for tool
.TP
\fB\-n\fR, \fB\-\-name\fR=\fINAME\fR
take NAME (default a"b)
.SH "EXIT STATUS"
0 done;
1 not.
.SH "SEE ALSO"
\fBtool\-sub\fR(1)
`, `tool-sub.1
.TH "TOOL-SUB" "1" "2026-01-02" "v1" "oneboot"
.SH "NAME"
tool\-sub \- Do less
.SH "SYNOPSIS"
\fBtool sub\fR THING [flags]
.SH "DESCRIPTION"
Do less.
.SH "OPTIONS"
.TP
\fB\-h\fR, \fB\-\-help\fR
help for sub
.SH "EXAMPLES"
.nf
  tool sub x
.fi
.SH "SEE ALSO"
\fBtool\fR(1)
`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", strings.ReplaceAll(diff, "\t", "  "))
	}
}
