package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/record"
)

func newShow() *cobra.Command {
	var dir, output string
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the record of the last firstboot run",
		Example: `  oneboot show
  oneboot show --root /rootfs -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return badOutput(output)
			}
			raw, rec, err := readRecord(dir)
			if err != nil {
				return failed(err)
			}
			if output == "json" {
				_, err = cmd.OutOrStdout().Write(raw)
				return failed(err)
			}
			return failed(printText(cmd.OutOrStdout(), rec.Verdict, runText(rec)+installedText(dir)))
		},
	}
	cmd.Flags().StringVar(&dir, "root", "/", rootUsage)
	addOutputFlag(cmd, &output)
	return cmd
}

// runText tells of the run itself.
func runText(rec *record.Record) string {
	boot := rec.BootID
	if boot == "" {
		boot = "not known"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "run     %s, mode %s, oneboot %s\n", rec.Time.UTC().Format(time.RFC3339), clean(rec.Mode), clean(rec.Version))
	fmt.Fprintf(&b, "boot    %s\n", clean(boot))
	fmt.Fprintf(&b, "cost    %.2f s, registry requests: %d, bytes: %d\n", rec.Seconds, rec.Registry.Requests, rec.Registry.Bytes)
	printAct(&b, rec.Act)
	return b.String()
}

func readRecord(dir string) ([]byte, *record.Record, error) {
	root, err := hostfs.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	// As the caller sees it.
	name := filepath.Join(dir, record.Path)
	raw, err := root.ReadFile(record.Path, record.MaxSize)
	var pe *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, fmt.Errorf("there is no record at %s: oneboot firstboot has not run on this host", name)
	case errors.As(err, &pe):
		return nil, nil, fmt.Errorf("reading record %s: %w", name, pe.Err)
	case err != nil:
		return nil, nil, fmt.Errorf("reading record %s: %w", name, err)
	case len(bytes.TrimSpace(raw)) == 0:
		return nil, nil, fmt.Errorf("%s: the record is empty: it was cut short when it was written or copied", name)
	}
	rec, err := record.Parse(raw)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, nil, fmt.Errorf("%s: the record is cut short: copy it again", name)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return raw, rec, nil
}
