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
			}{programVersion(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			switch output {
			case "json":
				b, err := json.MarshalIndent(v, "", "  ")
				if err != nil {
					return failed(err)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", b)
				return failed(err)
			case "text":
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "oneboot %s %s %s\n", v.Version, v.Go, v.Platform)
				return failed(err)
			}
			return badOutput(output)
		},
	}
	addOutputFlag(cmd, &output)
	return cmd
}

func addOutputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "text", "text or json")
}

func badOutput(output string) error {
	return fmt.Errorf("--output: %q is neither text nor json", output)
}
