// Command oneboot tells on the first boot of a CoreOS node whether the OS that
// it booted already is the one that its cluster wants.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1 // no verdict could be written
	exitUsage   = 2
	// With --exit-code:
	exitDiffers = 10 // proceed, something differs
	exitUnknown = 11 // proceed, something is unknown
)

// version is set by the linker for release builds; else the build's own module
// version or revision stands in.
var version string //nolint:gochecknoglobals // the linker's only handle

// run executes the program and returns its exit code.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends a program that the first one has not.
	context.AfterFunc(ctx, stop)
	root := newRoot(filepath.Base(args[0]))
	root.SetArgs(args[1:])
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	var code exitCode
	if errors.As(err, &code) {
		return int(code)
	}
	fmt.Fprintln(root.ErrOrStderr(), "oneboot: "+cleanLines(err.Error()))
	var failure *failureError
	if errors.As(err, &failure) {
		return exitFailure
	}
	if cmd.Name() == "help" {
		cmd = root
	}
	fmt.Fprintf(root.ErrOrStderr(), "Run '%s --help' for usage.\n", cmd.CommandPath())
	return exitUsage
}

// exitCode ends the program with that code and no message.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// failureError marks an error that is not one of usage.
type failureError struct{ err error }

func (e *failureError) Error() string { return e.err.Error() }
func (e *failureError) Unwrap() error { return e.err }

func failed(err error) error {
	if err == nil {
		return nil
	}
	return &failureError{err}
}

func newRoot(calledAs string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "oneboot",
		Short: "Boot a CoreOS node once: prove that it already runs the OS that its cluster wants",
		Long: `oneboot compares the OS that a CoreOS node booted with the one that its cluster
wants: the content, the extensions, the kernel and its arguments, FIPS mode.
Only what is proven equal may skip the pivot and the reboot; anything unknown,
unreadable or late means that the node goes on as always.`,
		SilenceUsage: true, SilenceErrors: true,
		Args:              knownCommand,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return emptyFlag(cmd) },
	}
	showVersion := cmd.Flags().BoolP("version", "v", false, "version for oneboot")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !*showVersion {
			return cmd.Help()
		}
		_, err := fmt.Fprint(cmd.OutOrStdout(), versionLine())
		return failed(err)
	}
	cmd.SuggestionsMinimumDistance = 2
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		_, err := fmt.Fprint(cmd.OutOrStderr(), usageText(cmd))
		return err
	})
	cmd.SetHelpCommand(newHelp(cmd))
	if plugin, ok := strings.CutPrefix(calledAs, "oc-"); ok {
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "oc " + plugin}
	} else if plugin, ok := strings.CutPrefix(calledAs, "kubectl-"); ok {
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl " + plugin}
	}
	cmd.AddCommand(
		newAnalyze(), newFirstboot(), newFastReboot(), newRevert(), newShow(), newCollect(),
		newInspect(), newDiff(), newValidate(), newPlan(), newDisk(),
		newStream(),
		newVersion(),
	)
	cmd.CompletionOptions.HiddenDefaultCmd = true
	return cmd
}

// newHelp is help for people who type it in front; of a command that there is
// not it knows nothing.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [command]", Short: "Help about a command", Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return knownCommand(root, args)
			}
			return cmd.Help()
		},
	}
}

// knownCommand refuses the name of a command that there is not.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		hint = ": did you mean " + strings.Join(like, " or ") + "?"
	}
	return fmt.Errorf("unknown command %q%s", args[0], hint)
}

// emptyFlag refuses flags with an empty value, most often a variable that a
// script has not set: the flag would not be what its caller takes it for.
func emptyFlag(cmd *cobra.Command) error {
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if err == nil && f.Value.Type() == "string" && f.Value.String() == "" {
			err = fmt.Errorf("--%s: the value is empty", f.Name)
		}
	})
	return err
}

var missingUnit = regexp.MustCompile(`for "(.*--[a-z-]+)" flag: time: missing unit in duration "(.*)"$`)

// flagError words what newcomers meet first.
func flagError(err error) error {
	if m := missingUnit.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%s: %s has no unit: write 5s or 2m", m[1], m[2])
	}
	return err
}

// programVersion is the linker's version, else what the Go build recorded.
func programVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}
