package e2e

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/diskimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

// poolArguments are those that stock clusters add to every pool.
var poolArguments = []string{"systemd.unified_cgroup_hierarchy=1", `cgroup_no_v1="all"`}

// A diskLab has disks that are as wanted, made once.
type diskLab struct {
	*lab
	dir   string
	image string
	// mc is the rendered MachineConfig of the pool.
	mc  string
	raw map[string]string
}

var theDisks struct {
	sync.Once
	*diskLab
}

// newDiskLab makes an ext4 and an xfs disk with the lab's native image deployed
// as image builders do it.
func newDiskLab(t *testing.T) *diskLab {
	t.Helper()
	l := newLab(t)
	theDisks.Do(func() {
		d := &diskLab{lab: l, dir: filepath.Join(l.dir, "disks"), raw: map[string]string{}}
		if err := os.Mkdir(d.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		d.image = "quay.io/openshift-release-dev/ocp-v4.0-art-dev@" + l.native.Digest
		d.mc = d.config(t, "pool", sysroot.MachineConfig{})
		root := d.physicalRoot(t, diskOptions{})
		for _, kind := range []string{"ext4", "xfs"} {
			d.raw[kind] = filepath.Join(d.dir, kind+".raw")
			if err := diskimage.Make(d.raw[kind], root, diskimage.Options{RootType: kind}); err != nil {
				t.Fatal(err)
			}
		}
		theDisks.diskLab = d
	})
	if theDisks.diskLab == nil {
		t.Fatal("the disks could not be made")
	}
	return theDisks.diskLab
}

// config writes a MachineConfig that wants the lab's image and the pool's
// arguments, unless it has others.
func (d *diskLab) config(t *testing.T, name string, mc sysroot.MachineConfig) string {
	t.Helper()
	if mc.OSImageURL == "" {
		mc.OSImageURL = d.image
	}
	if mc.KernelArguments == nil {
		mc.KernelArguments = poolArguments
	}
	mc.Annotations = map[string]string{"machineconfiguration.openshift.io/release-image-version": "4.16.3"}
	file := filepath.Join(d.dir, name+".json")
	if err := os.WriteFile(file, []byte(must[string](t)(mc.JSON())), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

type diskOptions struct {
	origin, stateroot string
}

// physicalRoot makes the root of a disk that never booted.
func (d *diskLab) physicalRoot(t *testing.T, o diskOptions) string {
	t.Helper()
	s := must[*sysroot.Sysroot](t)(sysroot.New(filepath.Join(sysroot.TempDir(t), "root")))
	node := nodeOptions{image: d.native, origin: o.origin}
	if node.origin == "" {
		node.origin = sysroot.ContainerOrigin("ostree-unverified-registry:" + d.image)
	}
	dep := d.deploy(t, s, node)
	if o.stateroot != "" {
		if err := s.AddStateroot(o.stateroot); err != nil {
			t.Fatal(err)
		}
		dep = must[sysroot.Deployment](t)(s.Deploy(dep.Checksum, sysroot.DeployOptions{Stateroot: o.stateroot, Origin: node.origin}))
	}
	deployed := strings.TrimPrefix(dep.Dir, s.Dir)
	kargs := append([]string{"$ignition_firstboot", "ignition.platform.id=metal"}, poolArguments...)
	if err := dep.SetBootOptions(kargs...); err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string]string{
		"boot/ignition.firstboot":                                 "",
		filepath.Join(deployed, "etc/containers/policy.json"):     `{"default":[{"type":"insecureAcceptAnything"}]}`,
		filepath.Join(deployed, "etc/containers/registries.conf"): "[[registry]]\nlocation = \"" + d.reg.Host + "\"\ninsecure = true\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(s.Dir, file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.Dir, file), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return s.Dir
}

func (d *diskLab) check(t *testing.T, path string, edit ...func(*daemon.DiskOptions)) *daemon.DiskReport {
	t.Helper()
	opts := daemon.DiskOptions{Path: path, MachineConfigFile: d.mc, Timeout: 20 * time.Second, Platform: "metal"}
	for _, e := range edit {
		e(&opts)
	}
	return must[*daemon.DiskReport](t)(daemon.CheckDisk(context.Background(), opts))
}

// copyOf is an image that the test may change.
func (d *diskLab) copyOf(t *testing.T, kind string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "disk.raw")
	if err := diskimage.Copy(name, d.raw[kind]); err != nil {
		t.Fatal(err)
	}
	return name
}

// notSame are the checks that say neither same nor skipped.
func notSame(r *daemon.DiskReport) map[string]string {
	out := map[string]string{}
	for _, c := range r.Checks {
		if c.Outcome == verdict.OutcomeDiffers || c.Outcome == verdict.OutcomeUnknown {
			out[string(c.Name)] = c.Outcome.String()
		}
	}
	return out
}

func sortedStrings(list ...string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

func wantOutcome(t *testing.T, r *daemon.DiskReport, outcome verdict.Outcome, reason verdict.Reason) {
	t.Helper()
	if r.Outcome != outcome || r.Reason != reason {
		t.Errorf("got %s %s, want %s %s\nchecks %+v\nerrors %+v", r.Outcome, r.Reason, outcome, reason, r.Checks, r.Errors)
	}
}

// noTraces: nothing stays mounted and no loop device stays in use.
func noTraces(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		left, err := filepath.Glob(filepath.Join(os.TempDir(), "oneboot-disk-*"))
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v %v", left, err)
		}
		out, err := exec.Command("losetup", "--list", "--noheadings", "--output", "BACK-FILE").Output()
		if err != nil || strings.Contains(string(out), "/disks/") || strings.Contains(string(out), "disk.raw") {
			t.Errorf("loop devices in use: %s %v", out, err)
		}
	})
}

func TestDiskAsWanted(t *testing.T) {
	noTraces(t)
	d := newDiskLab(t)
	for kind := range d.raw {
		t.Run(kind, func(t *testing.T) {
			r := d.check(t, d.raw[kind])
			wantOutcome(t, r, verdict.OutcomeSame, verdict.ReasonProven)
			if got := r.Disk.Partitions; len(got) != 4 || got[3].Label != "root" || got[3].Filesystem != kind ||
				got[3].UUID != diskimage.RootUUID || got[2].UUID != diskimage.BootUUID || got[1].Filesystem != "vfat" || got[0].Filesystem != "" {
				t.Errorf("got partitions %+v", got)
			}
			// The verdict is the one of analyze --unbooted on the same root.
			script := `
mount -o ro,loop,offset=$ROOTSTART,sizelimit=$ROOTSIZE,$OPTIONS "$IMG" "$DIR"
mount -o ro,loop,offset=$BOOTSTART,sizelimit=$BOOTSIZE "$IMG" "$DIR/boot"
"$TEST" -test.run '^TestDiskMounted$' -test.v`
			options := map[string]string{"ext4": "noload", "xfs": "nouuid"}[kind]
			out, err := diskimage.Run(script, "IMG="+d.raw[kind], "DIR="+t.TempDir(), "OPTIONS="+options,
				"TEST="+must[string](t)(os.Executable()), "DISK_MC="+d.mc)
			if err != nil || !strings.Contains(out, "--- PASS: TestDiskMounted") || !strings.Contains(out, "a root was mounted") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// TestDiskMounted runs in the mount namespace that TestDiskAsWanted makes, where
// DIR is a root of a disk image; by itself it checks a folder that is none.
func TestDiskMounted(t *testing.T) {
	mc := os.Getenv("DISK_MC")
	if mc == "" {
		d := newDiskLab(t)
		r := d.check(t, t.TempDir())
		wantOutcome(t, r, verdict.OutcomeUnknown, "partition-table-unknown")
		if r.Verdict == nil || len(r.Verdict.Errors) == 0 || r.Verdict.Errors[0].Code != "no-ostree-host" {
			t.Errorf("got verdict %+v", r.Verdict)
		}
		return
	}
	dir := os.Getenv("DIR")
	t.Log("a root was mounted")
	r := must[*daemon.DiskReport](t)(daemon.CheckDisk(context.Background(),
		daemon.DiskOptions{Path: dir, MachineConfigFile: mc, Timeout: 20 * time.Second, Platform: "metal"}))
	wantOutcome(t, r, verdict.OutcomeSame, verdict.ReasonProven)
	res := must[*daemon.Result](t)(daemon.Analyze(context.Background(),
		daemon.Options{Root: dir, Unbooted: true, MachineConfigFile: mc, Timeout: 20 * time.Second}))
	if diff := cmp.Diff(res.Verdict, *r.Verdict); diff != "" {
		t.Errorf("verdict (-analyze +disk check):\n%s", diff)
	}
}

// One thing wrong at a time.
func TestDiskDiffers(t *testing.T) {
	noTraces(t)
	d := newDiskLab(t)
	entry := "boot/loader/entries/ostree-1-rhcos.conf"
	tests := []struct {
		name   string
		kind   string
		script string
		edit   func(*daemon.DiskOptions)
		reason verdict.Reason
		// also are the checks that are not the same beside the one that decides.
		also []string
	}{
		{name: "no firstboot variable", script: `sed -i 's/\$ignition_firstboot //' ` + entry, reason: "firstboot-argument-differs"},
		{name: "firstboot for good", script: `sed -i 's/\$ignition_firstboot/ignition.firstboot/' ` + entry, reason: "firstboot-argument-differs"},
		{name: "another variable", script: `sed -i 's/^options /&$tuned_params /' ` + entry, reason: "firstboot-argument-unknown"},
		{name: "no stamp", script: `rm boot/ignition.firstboot`, reason: "ignition-stamp-differs"},
		{name: "booted before", script: `touch boot/.root_uuid`, reason: "ignition-stamp-differs"},
		{name: "stamp leads nowhere", script: `ln -sf nowhere boot/ignition.firstboot`, reason: "ignition-stamp-unknown"},
		{name: "platform", script: `sed -i 's/id=metal/id=qemu/' ` + entry, reason: "platform-differs"},
		{name: "no platform", script: `sed -i 's/ignition.platform.id=metal //' ` + entry, reason: "platform-differs"},
		{name: "two platforms", script: `sed -i 's/^options /&ignition.platform.id=qemu /' ` + entry, reason: "platform-unknown"},
		{name: "other platform wanted", edit: func(o *daemon.DiskOptions) { o.Platform = "openstack" }, reason: "platform-differs"},
		{name: "root by the placeholder", kind: "xfs", script: `sed -i 's/^options /&root=UUID=` + diskimage.RootUUID + ` /' ` + entry, reason: "root-argument-differs"},
		{name: "boot by the placeholder", script: `sed -i 's/^options /&boot=UUID=` + diskimage.BootUUID + ` /' ` + entry, reason: "root-argument-differs"},
		{name: "root by another UUID", script: `sed -i 's/^options /&root=UUID=6f0e /' ` + entry, reason: "root-argument-differs"},
		{name: "root by name", script: `sed -i 's,^options ,&root=/dev/sda4 ,' ` + entry, reason: "root-argument-unknown"},
		{name: "root by partition label", script: `sed -i 's/^options /&root=PARTLABEL=other /' ` + entry, reason: "root-argument-differs"},
		{name: "no var", script: `rm -r ostree/deploy/rhcos/var`, reason: "stateroot-differs"},
		{name: "other stateroot wanted", edit: func(o *daemon.DiskOptions) { o.Stateroot = "scos" }, reason: "stateroot-differs"},
		{name: "argument order", script: `sed -i 's/\(systemd[^ ]*\) \(cgroup[^ ]*\)/nosmt \2 \1/' ` + entry,
			edit: func(o *daemon.DiskOptions) {
				o.MachineConfigFile = d.config(t, "order", sysroot.MachineConfig{KernelArguments: []string{"console=tty0", "console=ttyS0"}})
			},
			reason: "kernel-arguments-differs", also: []string{"machine-config-daemon"}},
		{name: "argument missing", script: `sed -i 's/ cgroup_no_v1="all"//' ` + entry, reason: "kernel-arguments-differs", also: []string{"machine-config-daemon"}},
		{name: "origin", script: `sed -i 's,registry:.*,registry:quay.io/another@sha256:` + strings.Repeat("5", 64) + `,' ostree/deploy/rhcos/deploy/*.origin`,
			reason: "machine-config-daemon-differs"},
		{name: "fips", edit: func(o *daemon.DiskOptions) {
			o.MachineConfigFile = d.config(t, "fips", sysroot.MachineConfig{FIPS: true})
		}, reason: "fips-argument-differs"},
		{name: "fips not wanted", script: `sed -i 's/^options /&fips=1 /' ` + entry, reason: "fips-argument-differs"},
		{name: "other image", edit: func(o *daemon.DiskOptions) {
			o.MachineConfigFile = d.config(t, "other", sysroot.MachineConfig{OSImageURL: d.push(t, "os", d.otherImage)})
		}, reason: "os-content-differs", also: []string{"machine-config-daemon"}},
		{name: "rebuilt by another name", edit: func(o *daemon.DiskOptions) {
			o.MachineConfigFile = d.config(t, "rebuilt", sysroot.MachineConfig{OSImageURL: d.push(t, "os/mirror", d.native)})
		}, reason: "machine-config-daemon-differs"},
		{name: "pool of another image", edit: func(o *daemon.DiskOptions) {
			o.Image = "quay.io/os@sha256:" + strings.Repeat("5", 64)
			o.Offline = true
		},
			reason: "pool-differs", also: []string{"machine-config-daemon", "verdict"}},
		{name: "no pool", edit: func(o *daemon.DiskOptions) { o.Image, o.MachineConfigFile = d.image, "" }, reason: "pool-unknown", also: []string{"machine-config-daemon"}},
		{name: "no deployment", script: `rm boot/loader/entries/*`, reason: "firstboot-argument-unknown",
			also: []string{"ignition-stamp", "platform", "root-argument", "stateroot", "fips-argument", "verdict", "machine-config-daemon"}},
		{name: "no repository", script: `mv ostree/repo ostree/other`, reason: "firstboot-argument-unknown",
			also: []string{"ignition-stamp", "platform", "root-argument", "stateroot", "fips-argument", "verdict", "machine-config-daemon"}},
		{name: "boot is a link", script: `umount boot; rmdir boot; ln -s /etc boot`, reason: "journal-unknown",
			also: []string{"firstboot-argument", "ignition-stamp", "platform", "root-argument", "stateroot", "fips-argument", "verdict", "machine-config-daemon"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			kind := tt.kind
			if kind == "" {
				kind = "ext4"
			}
			image := d.raw[kind]
			if tt.script != "" {
				image = d.copyOf(t, kind)
				if err := diskimage.Edit(image, tt.script); err != nil {
					t.Fatal(err)
				}
			}
			var edits []func(*daemon.DiskOptions)
			if tt.edit != nil {
				edits = append(edits, tt.edit)
			}
			r := d.check(t, image, edits...)
			outcome := verdict.OutcomeDiffers
			if strings.HasSuffix(string(tt.reason), "-unknown") {
				outcome = verdict.OutcomeUnknown
			}
			wantOutcome(t, r, outcome, tt.reason)
			got := notSame(r)
			decided := strings.TrimSuffix(strings.TrimSuffix(string(tt.reason), "-differs"), "-unknown")
			if _, ok := got[decided]; !ok {
				decided = string(daemon.DiskCheckVerdict)
			}
			delete(got, decided)
			if diff := cmp.Diff(sortedStrings(tt.also...), sortedStrings(slices.Collect(maps.Keys(got))...)); diff != "" {
				t.Errorf("checks beside %s (-want +got):\n%s", decided, diff)
			}
		})
	}
}
