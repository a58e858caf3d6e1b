package main

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := struct {
				Version  string `json:"version"`
				Go       string `json:"go"`
				Platform string `json:"platform"`
			}{programVersion(), runtime.Version(), platform}
			switch output {
			case "json":
				b, err := json.MarshalIndent(v, "", "  ")
				if err != nil {
					return failed(err)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", b)
				return failed(err)
			case "text":
				_, err := fmt.Fprint(cmd.OutOrStdout(), versionLine())
				return failed(err)
			}
			return badOutput(output)
		},
	}
	addOutputFlag(cmd, &output)
	return cmd
}

const platform = runtime.GOOS + "/" + runtime.GOARCH

func versionLine() string {
	return fmt.Sprintf("oneboot %s %s %s\n", programVersion(), runtime.Version(), platform)
}

func addOutputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "text", "print as `FORMAT`, text or json")
	completeWith(cmd, "output", "text", "json")
}

// completeWith has shells offer the values of a flag.
func completeWith(cmd *cobra.Command, flag string, values ...cobra.Completion) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is not there: a mistake in this program
	}
}

func badOutput(output string) error {
	return fmt.Errorf("--output: %q is neither text nor json", output)
}
