package daemon

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// changedSince returns an error where the host is no longer what the verdict is
// about. Its facts were read before a registry was asked, which may take a
// minute and a half; meanwhile something may have staged another deployment, or
// replaced the MachineConfig. What cannot change under a booted deployment is
// not read again.
func changedSince(root *hostfs.Root, dir string, res *Result) error {
	now := &run{opts: Options{Root: dir}, root: root}
	now.gatherRoot()
	now.gatherMachineConfig()
	was, is := res.deployment, now.deployment
	if is == nil || is.Dir != was.Dir || is.Confirmed != was.Confirmed {
		return errors.New("the booted deployment is another one than when the verdict was reached")
	}
	if !reflect.DeepEqual(now.target.MachineConfig, res.Target.MachineConfig) {
		return errors.New("the MachineConfig has changed since the verdict was reached")
	}
	b := res.Booted
	b.Deployment, b.CommandLine, b.LegacyKernelArguments = now.booted.Deployment, now.booted.CommandLine, now.booted.LegacyKernelArguments
	b.ForceFile, b.NetworkState = now.booted.ForceFile, now.booted.NetworkState
	if v := verdict.Decide(b, res.Target, res.Policy); v.Action != verdict.Skip || v.Proof != res.Verdict.Proof {
		return fmt.Errorf("the host has changed since the verdict was reached, which would now be another one: %s", v.Reason)
	}
	if why := joined(root); why != "" {
		return errors.New(why)
	}
	return nil
}
