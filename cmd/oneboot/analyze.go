package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/verdict"
)

func newAnalyze() *cobra.Command {
	var (
		opts     daemon.Options
		skip     []string
		output   string
		replay   string
		exitWith bool
	)
	cmd := &cobra.Command{
		Use:   "analyze",
		Short: "Decide whether the booted OS is the wanted OS; change nothing",
		Long: `Decide whether the booted OS is the OS that the node's MachineConfig wants.
Nothing is changed. Every host fact, credential, policy and mirror is read below
--root; files named by flags are the caller's.

An answer is hypothetical, and never acted upon or recorded, where it is not of
the running host and its own MachineConfig as they are: with --unbooted,
--machineconfig, --target, --status-json or --skip-check.

A saved rpm-ostree status --json is compared with the sysroot below --root.
Where there is none, as on most desks, the status decides what it can, which is
never a skip, and what only the running host can tell is unknown; name the
node's MachineConfig with --machineconfig. Registries are asked as --root says.

Exit status: 0 a verdict was reached, 1 none could be written or a signal ended
the run, 2 wrong usage.
With --exit-code: 0 skip, 10 proceed because something differs, 11 proceed
because something is unknown.`,
		Example: `  oneboot analyze
  oneboot analyze --root /rootfs -o json
  oneboot analyze --unbooted --root /mnt --target quay.io/example/os@sha256:...
  oneboot analyze --status-json status.json --machineconfig mc.yaml
  oneboot analyze --capture oneboot-capture.tar.gz`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return badOutput(output)
			}
			if err := checkOptions(opts); err != nil {
				return err
			}
			if opts.Unbooted && opts.StatusFile != "" {
				return fmt.Errorf("--status-json cannot be used with --unbooted: rpm-ostree says nothing of a disk that is not running")
			}
			v, err := verdictOf(cmd, opts, skip, replay)
			if err != nil {
				return err
			}
			installed := ""
			if replay == "" {
				installed = installedText(opts.Root)
			}
			if err := printVerdict(cmd, output, v, installed); err != nil {
				return failed(err)
			}
			if cmd.Context().Err() != nil {
				return exitCode(exitFailure)
			}
			if exitWith {
				return exitFor(v)
			}
			return nil
		},
	}
	f := cmd.Flags()
	addHostFlags(cmd, &opts, 30*time.Second)
	addTargetFlags(cmd, &opts, &skip)
	f.StringVar(&opts.StatusFile, "status-json", "", "compare with this `FILE`, saved from rpm-ostree status --json (- is stdin); the answer is hypothetical")
	f.StringVar(&replay, "capture", "", "decide again on `FILE`, which oneboot collect wrote (- is stdin); nothing else is read")
	f.BoolVar(&exitWith, "exit-code", false, "exit with 0 for skip, 10 or 11 for proceed")
	addOutputFlag(cmd, &output)
	return cmd
}

// verdictOf decides on the host, or again on a capture.
func verdictOf(cmd *cobra.Command, opts daemon.Options, skip []string, replay string) (verdict.Verdict, error) {
	if replay == "" {
		names, err := checkNames(skip)
		if err != nil {
			return verdict.Verdict{}, err
		}
		opts.SkipChecks = names
		if err := opts.CheckFiles(); err != nil {
			return verdict.Verdict{}, failed(err)
		}
		res, err := daemon.Analyze(cmd.Context(), opts)
		if err != nil {
			return verdict.Verdict{}, failed(err)
		}
		return res.Verdict, nil
	}
	var other []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "capture" && f.Name != "output" && f.Name != "exit-code" {
			other = append(other, "--"+f.Name)
		}
	})
	if len(other) > 0 {
		return verdict.Verdict{}, fmt.Errorf("--capture holds its own facts: it cannot be used with %s", strings.Join(other, ", "))
	}
	v, err := daemon.Replay(replay)
	return v, failed(err)
}

// addTargetFlags adds the flags that analyze and collect share.
func addTargetFlags(cmd *cobra.Command, opts *daemon.Options, skip *[]string) {
	f := cmd.Flags()
	f.BoolVar(&opts.Unbooted, "unbooted", false, "--root is a disk that is not running; the answer is hypothetical")
	f.StringVar(&opts.MachineConfigFile, "machineconfig", "", "read this `FILE` (a MachineConfig as JSON or YAML) instead of the node's own")
	f.StringVar(&opts.Target, "target", "", "compare with this `IMAGE` instead of osImageURL: [docker://]REGISTRY/REPOSITORY@sha256:DIGEST, oci:DIR, oci-archive:FILE or dir:DIR")
	f.BoolVar(&opts.Offline, "offline", false, "ask no registry")
	f.BoolVar(&opts.Full, "full", false, "gather every fact, also those that cannot change the answer")
	f.StringArrayVar(skip, "skip-check", nil, "leave this `CHECK` out (repeatable); the answer is hypothetical")
}

// addHostFlags adds the flags that analyze and firstboot share.
func addHostFlags(cmd *cobra.Command, opts *daemon.Options, timeout time.Duration) {
	f := cmd.Flags()
	f.StringVar(&opts.Root, "root", "/", rootUsage)
	f.StringVar(&opts.AuthFile, "authfile", "", "registry credentials from `FILE` instead of the host's")
	f.DurationVar(&opts.Timeout, "timeout", timeout, "proceed after this `TIME` (5s, 2m) without an answer")
}

const rootUsage = "the host's root is `DIR`"

// checkOptions returns an error of usage.
func checkOptions(opts daemon.Options) error {
	if opts.Timeout <= 0 {
		return fmt.Errorf("--timeout: %s is not a time to wait", opts.Timeout)
	}
	return nil
}

func checkNames(skip []string) ([]verdict.CheckName, error) {
	var out []verdict.CheckName
	for _, s := range skip {
		name := verdict.CheckName(s)
		if !slices.Contains(verdict.CheckNames(), name) {
			var known []string
			for _, n := range verdict.CheckNames() {
				known = append(known, string(n))
			}
			return nil, fmt.Errorf("--skip-check: there is no check %q; the checks are %s", s, strings.Join(known, ", "))
		}
		out = append(out, name)
	}
	return out, nil
}

func printVerdict(cmd *cobra.Command, output string, v verdict.Verdict, more string) error {
	if output == "text" {
		return printText(cmd.OutOrStdout(), v, more)
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("writing verdict: %w", err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", b)
	return err
}

func exitFor(v verdict.Verdict) error {
	switch {
	case v.Action == verdict.Skip:
		return nil
	case v.Conclusive:
		return exitCode(exitDiffers)
	default:
		return exitCode(exitUnknown)
	}
}
