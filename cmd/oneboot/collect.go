package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oneboot/oneboot/daemon"
)

func newCollect() *cobra.Command {
	var (
		opts daemon.Options
		skip []string
		file string
	)
	cmd := &cobra.Command{
		Use:   "collect",
		Short: "Write one archive with what a verdict rests on, for a bug report",
		Long: `Analyze as "oneboot analyze" does, with the same flags, and write one archive
with every fact that the verdict rests on: the host's, the registry's answers
and errors. Secrets are left out: credentials are never part of the facts, and
kernel arguments that may hold secrets lose their values.

"oneboot analyze --capture FILE" comes to the same verdict on any machine, with
no network.`,
		Example: `  oneboot collect
  oneboot collect --root /rootfs --file -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOptions(opts); err != nil {
				return err
			}
			names, err := checkNames(skip)
			if err != nil {
				return err
			}
			opts.SkipChecks = names
			if err := opts.CheckFiles(); err != nil {
				return failed(err)
			}
			if file == "-" {
				_, err := daemon.Collect(cmd.Context(), opts, programVersion(), cmd.OutOrStdout())
				return failed(err)
			}
			res, size, err := daemon.CollectFile(cmd.Context(), opts, programVersion(), file)
			if err != nil {
				return failed(err)
			}
			action, err := res.Verdict.Action.MarshalText()
			if err != nil {
				return failed(err)
			}
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "wrote %s (%d kB): %s, %s\n", file, (size+999)/1000, strings.ToUpper(string(action)), res.Verdict.Reason)
			return failed(err)
		},
	}
	addHostFlags(cmd, &opts, 30*time.Second)
	addTargetFlags(cmd, &opts, &skip)
	cmd.Flags().StringVarP(&file, "file", "f", "oneboot-capture.tar.gz", "write this new `FILE`, or - for stdout")
	return cmd
}
