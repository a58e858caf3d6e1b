package main

import (
	"github.com/spf13/cobra"

	"github.com/oneboot/oneboot/daemon"
)

// newFastReboot has the steps that the units call; see docs/fast-reboot.md.
func newFastReboot() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "fast-reboot",
		Short:  "The steps of a reboot without the firmware, for units",
		Hidden: true,
		Args:   cobra.NoArgs,
	}
	root := "/"
	install := &cobra.Command{Use: "install", Short: "Put this program into the host's /run", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return failed(daemon.InstallFastReboot(root)) }}
	install.Flags().StringVar(&root, "root", root, "the host's root is at `DIR`")
	cmd.AddCommand(install)
	step := func(name, short string, run func(*cobra.Command) error) {
		cmd.AddCommand(&cobra.Command{Use: name, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return failed(run(cmd)) }})
	}
	step("arm", "Arm it, as the record of this boot says", func(cmd *cobra.Command) error { return daemon.ArmFastReboot(cmd.Context()) })
	step("load", "Load the next deployment's kernel, at shutdown", func(*cobra.Command) error { return daemon.LoadFastReboot() })
	step("kexec", "Start the kernel that was loaded, at the end of a shutdown", func(*cobra.Command) error { return daemon.Kexec() })
	return cmd
}
