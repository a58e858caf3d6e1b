package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oneboot/oneboot/daemon"
)

// forcePivot is how a node that has joined pivots all the same. The
// machine-config-daemon updates whatever it compares where its force file
// exists (newMachineConfigDiff in pkg/daemon/update.go), but leaves the OS alone
// where the origin names the wanted image (applyLayeredOSChanges): so the origin
// goes back first. It looks when it starts (checkStateOnFirstRun in
// pkg/daemon/daemon.go), drains the node and reboots it.
const forcePivot = `To have this node pivot and reboot in the machine-config-daemon's own way instead:
  oneboot revert --force
  touch /run/machine-config-daemon-force
  oc -n openshift-machine-config-operator delete pod -l k8s-app=machine-config-daemon --field-selector spec.nodeName=NODE
`

func newRevert() *cobra.Command {
	var (
		dir   string
		force bool
	)
	cmd := &cobra.Command{
		Use:   "revert",
		Short: "Undo the last act",
		Long: `Undo what the last oneboot firstboot has changed: content, owner, mode, label
and time of every file are as before. Only while the node has not joined its
cluster; after that the command refuses and says how to have the node pivot.

Exit status: 0 the act is undone, or there was none; 1 it is not; 2 wrong usage.`,
		Example: `  oneboot revert
  oneboot revert --force`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := daemon.Revert(dir, force)
			if err != nil {
				return failed(explain(err))
			}
			var b strings.Builder
			if len(r.Undone)+len(r.Left) == 0 {
				b.WriteString("There is nothing to undo.\n")
			}
			for _, name := range r.Undone {
				fmt.Fprintf(&b, "undone  %s\n", clean(name))
			}
			for _, name := range r.Left {
				fmt.Fprintf(&b, "left    %s: something else has changed it since\n", clean(name))
			}
			_, err = cmd.OutOrStdout().Write([]byte(b.String()))
			return failed(err)
		},
	}
	cmd.Flags().StringVar(&dir, "root", "/", rootUsage)
	cmd.Flags().BoolVar(&force, "force", false, "also after the node has joined, and where something else has changed a file since: that one is left alone")
	return cmd
}

// explain adds to a refusal what to do instead.
func explain(err error) error {
	var refused *daemon.RefusedError
	switch {
	case !errors.As(err, &refused):
		return err
	case refused.Late:
		return fmt.Errorf("not undone: %w.\n%s", err, strings.TrimSuffix(forcePivot, "\n"))
	}
	return fmt.Errorf("not undone: %w; with --force the rest is undone", err)
}
