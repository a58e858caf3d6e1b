package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/oneboot/oneboot/daemon"
)

func newValidate() *cobra.Command {
	var (
		flags         imageFlags
		output, image string
	)
	cmd := &cobra.Command{
		Use:   "validate MACHINECONFIG... --image IMAGE",
		Short: "MachineConfigs against an OS image: extensions and kernel types",
		Long: `Whether an image ships the extensions and the kernel type that MachineConfigs
want. MACHINECONFIG is a file, a folder (its .yaml, .yml and .json files), or -
for stdin. IMAGE is a release image, an extensions image, or an OS image that
offers extensions itself. What is not known counts as a finding.

Exit status: 0 nothing was found; 1 there are findings, or the image could not
be read; 2 wrong usage.`,
		Example: `  oneboot validate machineconfigs/ --image quay.io/example/release:4.19.2
  oneboot validate - -o json --image quay.io/example/release:4.19.2`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return badOutput(output)
			}
			opts := flags.options(image, cmd.ErrOrStderr())
			if err := opts.CheckValidate(); err != nil {
				return err
			}
			if err := flags.check(); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), flags.time)
			defer cancel()
			v, err := daemon.Validate(ctx, opts, args, os.Stdin)
			if err != nil {
				return failed(err)
			}
			if err := printValidation(cmd, output, v); err != nil {
				return failed(err)
			}
			if len(v.Findings) > 0 {
				return exitCode(exitFailure)
			}
			return nil
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&image, "image", "", "compare with `IMAGE`")
	addOutputFlag(cmd, &output)
	return cmd
}

func printValidation(cmd *cobra.Command, output string, v *daemon.Validation) error {
	w := cmd.OutOrStdout()
	if output == "json" {
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s\n", b)
		return err
	}
	for _, f := range v.Findings {
		at := clean(f.File)
		if f.Line > 0 {
			at += fmt.Sprintf(":%d", f.Line)
		}
		if f.Field != "" {
			at += ": " + f.Field
		}
		if _, err := fmt.Fprintf(w, "%s: %s (%s)\n", at, clean(f.Message), f.Code); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%d MachineConfigs, %d findings\n", v.MachineConfigs, len(v.Findings))
	return err
}
