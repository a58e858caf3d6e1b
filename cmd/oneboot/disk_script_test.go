package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/oneboot/oneboot/test/diskimage"
	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

// scriptDisk is "disk FILE": it makes a raw disk that is as wanted, puts the
// MachineConfig of its pool into FILE.mc.json and sets $IMAGE to the OS image.
func scriptDisk(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: disk FILE")
	}
	image, err := makeDisk(ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Setenv("IMAGE", image)
}

func makeDisk(name string) (image string, err error) {
	made, err := nodeParts.get()
	if err != nil {
		return "", err
	}
	s, err := sysroot.New(name + ".root")
	if err != nil {
		return "", err
	}
	commit, err := nativeimage.Import(s.Repo(), made, nativeimage.ImportOptions{})
	if err != nil {
		return "", err
	}
	mc := sysroot.MachineConfig{
		OSImageURL:      "quay.io/openshift-release-dev/ocp-v4.0-art-dev@" + made.Digest,
		KernelArguments: []string{"systemd.unified_cgroup_hierarchy=1", `cgroup_no_v1="all"`},
		Annotations:     map[string]string{"machineconfiguration.openshift.io/release-image-version": "4.16.3"},
	}
	d, err := s.Deploy(commit, sysroot.DeployOptions{Origin: sysroot.ContainerOrigin("ostree-unverified-registry:" + mc.OSImageURL)})
	if err != nil {
		return "", err
	}
	if err := d.SetBootOptions(append([]string{"$ignition_firstboot", "ignition.platform.id=metal"}, mc.KernelArguments...)...); err != nil {
		return "", err
	}
	text, err := mc.JSON()
	if err != nil {
		return "", err
	}
	policy := filepath.Join(d.Dir, "etc/containers/policy.json")
	if err := os.MkdirAll(filepath.Dir(policy), 0o755); err != nil {
		return "", err
	}
	for file, content := range map[string]string{
		policy: `{"default":[{"type":"insecureAcceptAnything"}]}`,
		filepath.Join(s.Dir, "boot/ignition.firstboot"): "",
		name + ".mc.json": strings.TrimSpace(text) + "\n",
	} {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			return "", err
		}
	}
	return mc.OSImageURL, diskimage.Make(name, s.Dir, diskimage.Options{RootType: "xfs"})
}
