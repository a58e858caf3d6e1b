//go:build oneboot

// Package daemon is what the machine-config-operator's pkg/daemon gains where it uses
// oneboot as a library: two functions and a call of each, see docs/integration.md. It
// is built and run in a copy of the real package.
package daemon

import (
	"context"
	"os"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/openshift/machine-config-operator/pkg/daemon/constants"
	"k8s.io/klog/v2"

	oneboot "github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/record"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// provenTime bounds the question, registry and all.
const provenTime = 90 * time.Second

// finishProven finishes the first boot where the booted OS is proven to be the one
// that mc wants, and reports whether it did. It is called in
// RunFirstbootCompleteMachineconfig before anything else: whatever cannot be told
// means that the first boot goes on as always, never that it fails.
func (dn *Daemon) finishProven(machineConfigFile string, mc *mcfgv1.MachineConfig) bool {
	if machineConfigFile != constants.MachineConfigEncapsulatedPath {
		return false
	}
	// The mode report changes nothing but the record, which is the proof that
	// provenOS reads later. The node's own MachineConfig is what is asked about.
	res, err := oneboot.Firstboot(context.Background(), oneboot.Options{Root: "/", Timeout: provenTime, RetryTransport: true}, oneboot.ModeReport, "machine-config-daemon")
	if err != nil {
		klog.Warningf("the booted OS is not proven: %v", err)
		return false
	}
	v := res.Verdict
	if v.Action != verdict.Skip || !v.Conclusive || v.Hypothetical || v.Target.OSImageURL != mc.Spec.OSImageURL {
		klog.Infof("the booted OS is not proven to be %s: %s", mc.Spec.OSImageURL, v.Reason)
		return false
	}
	// What an update does on a first boot beside the OS, and then the daemon's own
	// sign that the first boot is over.
	if err := dn.updateKubeConfigPermission(); err != nil {
		klog.Warningf("finishing the first boot: %v", err)
		return false
	}
	if err := os.Remove(constants.MachineConfigEncapsulatedPath); err != nil {
		klog.Warningf("finishing the first boot: %v", err)
		return false
	}
	logSystem("skipping reboot: the booted OS is %s, proven by %s", mc.Spec.OSImageURL, v.Proof)
	return true
}

// provenOS reports whether the first boot's record proves that the booted deployment
// has the content of osImageURL, whatever its origin calls it. It is called in checkOS,
// and asks nothing of the network: a record counts only for the very pull spec and for
// the deployment that is booted now.
func (dn *Daemon) provenOS(osImageURL string) bool {
	root, err := hostfs.Open("/")
	if err != nil {
		return false
	}
	defer root.Close()
	raw, err := root.ReadFile(record.Path, record.MaxSize)
	if err != nil {
		return false
	}
	rec, err := record.Parse(raw)
	if err != nil {
		klog.Warningf("%s proves nothing: %v", record.Path, err)
		return false
	}
	booted, _, err := dn.NodeUpdaterClient.GetBootedAndStagedDeployment()
	return err == nil && rec.Proves(osImageURL, verdict.Checksum(booted.Checksum))
}
