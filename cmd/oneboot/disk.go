package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/verdict"
)

func newDisk() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "disk",
		Short: "Check a disk image before nodes are made from it",
		Args:  knownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDiskCheck())
	return cmd
}

func newDiskCheck() *cobra.Command {
	var (
		opts     daemon.DiskOptions
		output   string
		exitWith bool
	)
	cmd := &cobra.Command{
		Use:   "check IMAGE_FILE|MOUNTED_ROOT",
		Short: "Say whether a node made from this disk will boot once",
		Long: `Say whether a node made from this raw disk boots once: whether the OS on it is
the OS image and says so in its origin, as the machine-config-daemon reads it,
and whether what the first boot depends on is in order.

An image file or a block device is mounted read-only where only this program
sees it, which takes root; without, the answer says how to mount it. Its file
systems are then read by this machine's kernel: check only images whose maker
you trust, or mount them in a virtual machine. A mounted root has its boot file
system at boot.

Name the pool's rendered MachineConfig: without it the kernel arguments are not
known, and neither is the answer. Registries are asked as the disk's own
configuration says, with the credentials of --authfile.

Exit status: 0 a report was written, 1 none could be or a signal ended the run,
2 wrong usage.
With --exit-code: 0 boots once, 10 something differs, 11 something is unknown.`,
		Example: `  oneboot disk check disk.raw --machineconfig mc.yaml --authfile auth.json
  oneboot disk check disk.raw --image quay.io/example/os@sha256:... --exit-code
  oneboot disk check /mnt --machineconfig rendered-worker.yaml -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return errors.New("name one raw disk image, or the folder where its root is mounted")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Path = args[0]
			if output != "text" && output != "json" {
				return badOutput(output)
			}
			if err := checkDiskOptions(opts); err != nil {
				return err
			}
			report, err := daemon.CheckDisk(cmd.Context(), opts)
			if err != nil {
				return failed(err)
			}
			if err := printDisk(cmd.OutOrStdout(), output, opts.Path, report); err != nil {
				return failed(err)
			}
			if exitWith {
				return exitForDisk(report)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.Image, "image", "", "the OS `IMAGE` that nodes are to run, as analyze takes it for --target; where not given it is the MachineConfig's osImageURL")
	f.StringVar(&opts.MachineConfigFile, "machineconfig", "", "the pool's rendered MachineConfig is this `FILE` (JSON or YAML)")
	f.StringVar(&opts.AuthFile, "authfile", "", "registry credentials from `FILE`")
	f.DurationVar(&opts.Timeout, "timeout", 30*time.Second, "what has no answer after this `TIME` (5s, 2m) is unknown; reading the image file itself does not count")
	f.BoolVar(&opts.Offline, "offline", false, "ask no registry")
	f.BoolVar(&opts.Full, "full", false, "gather every fact, also those that cannot change the answer")
	f.StringVar(&opts.Platform, "platform", "metal", "`ID` that ignition.platform.id has to be")
	f.StringVar(&opts.Stateroot, "stateroot", "", "`NAME` of the stateroot; where not given, any that CoreOS builds have")
	f.BoolVar(&opts.NoMount, "no-mount", false, "mount nothing: read the partition table and superblocks, and say how to mount")
	f.BoolVar(&opts.WriteSHA256, "write-sha256", false, "write IMAGE_FILE.sha256 where the disk is as wanted and there is none")
	f.BoolVar(&exitWith, "exit-code", false, "exit with 0 for a disk that boots once, 10 or 11 for another")
	addOutputFlag(cmd, &output)
	return cmd
}

// checkDiskOptions returns an error of usage, or of a file that a flag names.
func checkDiskOptions(opts daemon.DiskOptions) error {
	if opts.Image == "" && opts.MachineConfigFile == "" {
		return errors.New("what the disk is to be compared with is missing: give --machineconfig FILE or --image IMAGE")
	}
	host := daemon.Options{Timeout: opts.Timeout, Target: opts.Image, MachineConfigFile: opts.MachineConfigFile, AuthFile: opts.AuthFile}
	if err := checkOptions(host); err != nil {
		return err
	}
	return failed(host.CheckFiles())
}

func exitForDisk(r *daemon.DiskReport) error {
	switch r.Outcome {
	case verdict.OutcomeSame:
		return nil
	case verdict.OutcomeDiffers:
		return exitCode(exitDiffers)
	default:
		return exitCode(exitUnknown)
	}
}

func printDisk(w io.Writer, output, path string, r *daemon.DiskReport) error {
	if output == "json" {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(r); err != nil {
			return fmt.Errorf("writing report: %w", err)
		}
		return nil
	}
	_, err := io.WriteString(w, diskText(path, r))
	return err
}

// diskText is for a person: the answer, the checks, then what the verdict on the
// OS adds where it is not a skip.
func diskText(path string, r *daemon.DiskReport) string {
	var b strings.Builder
	writeWrapped(&b, diskHeadline(path, r), "  ")
	b.WriteString("\n")
	if r.Verdict != nil {
		printNames(&b, *r.Verdict)
	}
	errs := r.Errors
	if r.Verdict != nil {
		errs = append(errs, r.Verdict.Errors...)
	}
	printChecks(&b, verdict.Verdict{Checks: r.Checks, Errors: errs})
	if v := r.Verdict; v != nil {
		printDiskVerdict(&b, *v, r.Checks)
	}
	for _, s := range r.Warnings {
		writeWrapped(&b, "warning: "+clean(s), "  ")
	}
	for _, e := range errs {
		writeWrapped(&b, fmt.Sprintf("error %s: %s", clean(e.Code), short(clean(e.Message))), "  ")
	}
	if len(r.Commands) > 0 {
		b.WriteString("\nTo have it checked, as root:\n")
		for _, c := range r.Commands {
			b.WriteString("    " + clean(c) + "\n")
		}
	}
	return b.String()
}

func diskHeadline(path string, r *daemon.DiskReport) string {
	name := clean(filepath.Base(path))
	switch r.Outcome {
	case verdict.OutcomeSame:
		return "ONCE: a node made from " + name + " boots once"
	case verdict.OutcomeDiffers:
		return "NOT ONCE: " + name + " is not as wanted: " + clean(string(r.Reason))
	}
	return "UNKNOWN: whether a node made from " + name + " boots once: " + clean(string(r.Reason))
}

// printDiskVerdict shows the checks of the verdict that are not the same, and
// what the machine-config-daemon would do.
func printDiskVerdict(b *strings.Builder, v verdict.Verdict, checks []verdict.Check) {
	skips := slices.ContainsFunc(checks, func(c verdict.Check) bool {
		return c.Name == daemon.DiskCheckMCD && c.Outcome == verdict.OutcomeSame
	})
	if v.Action == verdict.Skip && skips {
		return
	}
	b.WriteString("\n")
	if v.Action != verdict.Skip {
		open := v
		open.Checks = nil
		for _, c := range v.Checks {
			if c.Outcome == verdict.OutcomeDiffers || c.Outcome == verdict.OutcomeUnknown {
				open.Checks = append(open.Checks, c)
			}
		}
		b.WriteString("The OS on it, as oneboot analyze --unbooted sees it:\n")
		printChecks(b, open)
		b.WriteString("\n")
	}
	if !skips {
		printMCO(b, v)
	}
	if v.Cost != nil {
		writeWrapped(b, "A pivot would fetch "+costText(*v.Cost)+".", "")
	}
	for _, s := range v.Warnings {
		writeWrapped(b, "warning: "+short(clean(s)), "  ")
	}
}
