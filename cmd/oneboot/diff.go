package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/verdict"
)

func newDiff() *cobra.Command {
	var (
		flags  imageFlags
		output string
		all    bool
	)
	cmd := &cobra.Command{
		Use:   "diff FROM TO",
		Short: "What changes between two OS images, or a host and an image",
		Long: `The packages that are added, removed and changed from one OS image to another,
kernel, glibc, CRI-O and kubelet first, and what a machine that has FROM would
fetch for TO. Each is an OS image or a release image, or "host": the deployment
that --root has booted, for which no registry is asked. The urgency is one word:
none, userspace, kernel, or unknown.

Exit status: 0 both were read; 1 one could not be; 2 wrong usage.`,
		Example: `  oneboot diff quay.io/example/os:4.19.1 quay.io/example/os:4.19.2
  oneboot diff host quay.io/example/release:4.19.2`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return badOutput(output)
			}
			if err := flags.check(); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), flags.time)
			defer cancel()
			d, err := daemon.Diff(ctx, flags.options("", cmd.ErrOrStderr()), args[0], args[1])
			if err != nil {
				return failed(err)
			}
			return failed(printDiff(cmd.OutOrStdout(), output, d, all))
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "list every package that changes, not only the number")
	addOutputFlag(cmd, &output)
	return cmd
}

func printDiff(w io.Writer, output string, d *daemon.ImageDiff, all bool) error {
	if output == "json" {
		b, err := json.MarshalIndent(d, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s\n", b)
		return err
	}
	var b strings.Builder
	inspectRow(&b, "from", clean(d.From.Image)+" "+clean(d.From.Version))
	inspectRow(&b, "to", clean(d.To.Image)+" "+clean(d.To.Version))
	inspectRow(&b, "urgency", string(d.Urgency))
	inspectRow(&b, "content", map[daemon.Content]string{
		daemon.ContentSame: "the same", daemon.ContentSamePackages: "the same packages, other files",
		daemon.ContentOther: "other packages", daemon.ContentUnknown: "unknown: " + clean(d.Unknown),
	}[d.Content])
	inspectRow(&b, "base", map[verdict.Outcome]string{verdict.OutcomeSame: "the same", verdict.OutcomeDiffers: "another", verdict.OutcomeUnknown: "unknown"}[d.Base])
	switch {
	case d.LayersToPull == nil:
		inspectRow(&b, "to pull", "unknown")
	case d.BytesToPull == nil:
		inspectRow(&b, "to pull", fmt.Sprintf("%d layers", *d.LayersToPull))
	default:
		inspectRow(&b, "to pull", fmt.Sprintf("%d layers, %.1f MB", *d.LayersToPull, float64(*d.BytesToPull)/1e6))
	}
	for _, c := range d.First {
		text := clean(c.From) + " -> " + clean(c.To)
		if c.From == c.To {
			text = clean(c.From) + ", the same"
		}
		inspectRow(&b, clean(c.Name), text)
	}
	if d.Changed != nil {
		inspectRow(&b, "packages", fmt.Sprintf("%d added, %d removed, %d changed", len(d.Added), len(d.Removed), len(d.Changed)))
	}
	if all {
		for _, c := range d.Added {
			fmt.Fprintf(&b, "+ %s %s\n", clean(c.Name), clean(c.To))
		}
		for _, c := range d.Removed {
			fmt.Fprintf(&b, "- %s %s\n", clean(c.Name), clean(c.From))
		}
		for _, c := range d.Changed {
			fmt.Fprintf(&b, "  %s %s -> %s\n", clean(c.Name), clean(c.From), clean(c.To))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
