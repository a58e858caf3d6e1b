package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/forecast"
	"github.com/oneboot/oneboot/pkg/verdict"
)

func newPlan() *cobra.Command {
	var (
		flags    imageFlags
		opts     daemon.PlanOptions
		output   string
		exitFlag bool
	)
	cmd := &cobra.Command{
		Use:   "plan PATH...",
		Short: "Which new nodes will boot once, and what would make them",
		Long: `For each source of new nodes (MachineSets, hosts, InfraEnvs, NodePools and the
like), what its next node will do on its first boot, why, and the one change
that would make it skip the pivot. PATH is a file, a folder, such as a
must-gather or a GitOps repository, or - for stdin. A skip is forecast only from
content that is known to be equal, or from an installer that writes the node
image; never from a version.

Exit status: 0 a plan was made; 1 it could not be; 2 wrong usage. With
--exit-code: 0 every new node will skip; 10 some will not; 11 something is
unknown.`,
		Example: `  oneboot plan must-gather/ --offline
  oneboot plan clusters/ --bootimages bootimages.yaml -o json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return badOutput(output)
			}
			if err := flags.check(); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), flags.time)
			defer cancel()
			opts.Paths, opts.Image = args, flags.options("", cmd.ErrOrStderr())
			p, err := daemon.MakePlan(ctx, opts, os.Stdin)
			if err != nil {
				return failed(err)
			}
			if err := printPlan(cmd.OutOrStdout(), output, p); err != nil {
				return failed(err)
			}
			if exitFlag {
				switch p.Outcome() {
				case verdict.OutcomeDiffers:
					return exitCode(exitDiffers)
				case verdict.OutcomeUnknown:
					return exitCode(exitUnknown)
				}
			}
			return nil
		},
	}
	flags.add(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&opts.Bootimages, "bootimages", nil, "what is in disk images, from `FILE`: a table, a node's record, a build's meta.json")
	f.BoolVar(&opts.Offline, "offline", false, "ask no registry")
	f.BoolVar(&exitFlag, "exit-code", false, "say by the exit status whether every new node will skip")
	addOutputFlag(cmd, &output)
	return cmd
}

func printPlan(w io.Writer, output string, p *daemon.Plan) error {
	if output == "json" {
		b, err := json.MarshalIndent(p, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s\n", b)
		return err
	}
	var b strings.Builder
	for _, f := range p.Forecasts {
		s := f.Source
		name := clean(s.Name)
		if s.Namespace != "" {
			name = clean(s.Namespace) + "/" + name
		}
		fmt.Fprintf(&b, "%-17s %s %s (%s)\n", f.Outcome, clean(s.Kind), name, f.Confidence)
		const indent = "                  "
		text := clean(f.Why)
		if f.Bytes != nil && f.Outcome != forecast.Skip {
			text += fmt.Sprintf("; it will pull %.1f MB", float64(*f.Bytes)/1e6)
		}
		if f.UserspaceOnly != nil && f.Outcome != forecast.Skip {
			text += map[bool]string{true: "; the kernel stays the same", false: "; the kernel is another"}[*f.UserspaceOnly]
		}
		writeWrapped(&b, indent+text+".", indent)
		if f.Change != "" {
			writeWrapped(&b, indent+"To skip: "+clean(f.Change)+".", indent)
		}
		for _, n := range s.Notes {
			writeWrapped(&b, indent+"Note: "+clean(n)+".", indent)
		}
	}
	if len(p.Forecasts) == 0 {
		b.WriteString("No source of new nodes was found.\n")
	}
	for _, x := range p.Problems {
		at := clean(x.File)
		if x.Line > 0 {
			at += fmt.Sprintf(":%d", x.Line)
		}
		writeWrapped(&b, "not read: "+at+": "+clean(x.Message), "  ")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
