package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/record"
)

func newFirstboot() *cobra.Command {
	var (
		opts   daemon.Options
		mode   string
		output string
	)
	cmd := &cobra.Command{
		Use:   "firstboot",
		Short: "Decide and write the record",
		Long: `Decide whether the booted OS is the wanted OS and write the answer to
` + record.Path + ` below --root. Mode "report", the only one of this
version, changes nothing else.`,
		Example: `  oneboot firstboot --mode report`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return badOutput(output)
			}
			if mode != daemon.ModeReport {
				return fmt.Errorf("--mode: %q is not known; this version has %q", mode, daemon.ModeReport)
			}
			if opts.Timeout <= 0 {
				return fmt.Errorf("--timeout: %s is not a time to wait", opts.Timeout)
			}
			opts.RetryTransport = true
			res, err := daemon.Firstboot(cmd.Context(), opts, programVersion())
			if res != nil {
				if perr := printVerdict(cmd, output, res.Verdict); err == nil {
					err = perr
				}
			}
			return failed(err)
		},
	}
	addHostFlags(cmd, &opts, 90*time.Second)
	cmd.Flags().StringVar(&mode, "mode", daemon.ModeReport, "what may be done: report")
	addOutputFlag(cmd, &output)
	return cmd
}
