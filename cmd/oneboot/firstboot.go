package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/record"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// clockWait bounds the wait for a synchronized clock where the node will join in
// this boot; see [daemon.WaitForClock].
const clockWait = 15 * time.Second

func newFirstboot() *cobra.Command {
	var (
		opts   daemon.Options
		mode   string
		fast   string
		output string
	)
	cmd := &cobra.Command{
		Use:   "firstboot",
		Short: "Decide, act by --mode and write the record",
		Long: `Decide whether the booted OS is the wanted OS and write the answer to
` + record.Path + ` below --root. Nothing else changes unless
the answer is a proven skip and the mode is another than report:

  report    nothing
  assert    the origin of the booted deployment names the wanted image, so that
            the machine-config-daemon finds no difference and skips by itself
  complete  as assert, and the first boot is finished as the machine-config-
            daemon would finish it, which then does not run
  auto      assert where the machine-config-daemon will skip after it, else
            complete

Everything is changed or nothing; oneboot revert undoes it. Where the node will
join in this very boot the command then waits, at most 15 s, for the clock.

Exit status: 0 the answer is in the record, also where acting on it failed and
the node goes on as always; 1 it could not be written, and nothing was changed;
2 wrong usage.`,
		Example: `  oneboot firstboot --mode report
  oneboot firstboot --mode assert`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return badOutput(output)
			}
			if !slices.Contains(daemon.Modes(), daemon.Mode(mode)) {
				return fmt.Errorf("--mode: %q is not known; the modes are %s", mode, modeNames())
			}
			if fast != "off" && fast != daemon.FastRebootKexec {
				return fmt.Errorf("--fast-reboot: %q is neither off nor %s", fast, daemon.FastRebootKexec)
			}
			if opts.Timeout <= 0 {
				return fmt.Errorf("--timeout: %s is not a time to wait", opts.Timeout)
			}
			if err := opts.CheckHost(); err != nil {
				return failed(err)
			}
			opts.RetryTransport = true
			if fast != "off" {
				opts.FastReboot = fast
			}
			res, err := daemon.Firstboot(cmd.Context(), opts, daemon.Mode(mode), programVersion())
			if res != nil {
				if perr := printFirstboot(cmd, output, fast, res); err == nil {
					err = perr
				}
				if res.OneBoot && !daemon.WaitForClock(cmd.Context(), clockWait) {
					fmt.Fprintf(cmd.ErrOrStderr(), "oneboot: the clock is not known to be synchronized, after a wait of at most %s\n", clockWait)
				}
			}
			return failed(err)
		},
	}
	addHostFlags(cmd, &opts, 90*time.Second)
	cmd.Flags().StringVar(&mode, "mode", string(daemon.ModeReport), "what `MODE` may do: "+modeNames())
	completeWith(cmd, "mode", strings.Split(modeNames(), ", ")...)
	cmd.Flags().StringVar(&fast, "fast-reboot", "off", "have the reboot of a pivot leave out the firmware: `HOW` is off or kexec")
	completeWith(cmd, "fast-reboot", "off", daemon.FastRebootKexec)
	addOutputFlag(cmd, &output)
	return cmd
}

func modeNames() string {
	var names []string
	for _, m := range daemon.Modes() {
		names = append(names, string(m))
	}
	return strings.Join(names, ", ")
}

// printFirstboot prints the verdict, in words what was done, and on stderr what
// failed.
func printFirstboot(cmd *cobra.Command, output, fast string, res *daemon.FirstbootResult) error {
	var err error
	if output == "text" {
		var b strings.Builder
		printAct(&b, &res.Act)
		if fast != "off" && res.Verdict.Action == verdict.Proceed {
			printFastReboot(&b, res.Verdict.FastReboot)
		}
		err = printText(cmd.OutOrStdout(), res.Verdict, b.String())
	} else {
		err = printVerdict(cmd, output, res.Verdict, "")
	}
	if err != nil {
		return err
	}
	if res.Act.State == record.ActFailed {
		fmt.Fprintf(cmd.ErrOrStderr(), "oneboot: the act failed, the node goes on as always: %s\n", clean(res.Act.Reason))
	}
	return nil
}

// printFastReboot says whether the reboot may leave out the firmware, and why not.
func printFastReboot(b *strings.Builder, f verdict.FastReboot) {
	line := f.State
	for i, w := range f.Why {
		line += []string{": ", "; "}[min(i, 1)] + w.Code
		if w.Detail != "" {
			line += " (" + clean(w.Detail) + ")"
		}
	}
	const indent = "        "
	var text strings.Builder
	writeWrapped(&text, indent+line, indent)
	b.WriteString("fast    " + strings.TrimPrefix(text.String(), indent))
}

// printAct says what was done; nothing where nothing was to be.
func printAct(b *strings.Builder, act *record.Act) {
	if act == nil || act.State == record.ActNone && act.Reason == "" {
		return
	}
	line := clean(string(act.State))
	if act.Mode != "" {
		line += ", mode " + clean(act.Mode)
	}
	if act.Forced {
		line += ", forced"
	}
	if act.Reason != "" {
		line += ": " + clean(act.Reason)
	}
	const indent = "        "
	var text strings.Builder
	writeWrapped(&text, indent+line, indent)
	b.WriteString("act     " + strings.TrimPrefix(text.String(), indent))
	for _, name := range act.Changed {
		b.WriteString(indent + clean(name) + "\n")
	}
	if act.MCO != nil {
		printMCOAs(b, "after it", *act.MCO, nil)
	}
}
