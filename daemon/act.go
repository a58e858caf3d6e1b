package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/machineconfig"
	"github.com/oneboot/oneboot/pkg/ostree"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// A Mode is what a firstboot run may do once a skip is proven.
type Mode string

// The modes. None does anything unless the whole verdict is a skip.
const (
	// ModeReport decides and records; nothing else on the host changes.
	ModeReport Mode = "report"
	// ModeAssert makes the origin of the booted deployment name the target, so
	// that the machine-config-daemon finds no difference and skips by itself.
	ModeAssert Mode = "assert"
	// ModeComplete does what ModeAssert does and finishes the first boot as the
	// machine-config-daemon would, which then does not run.
	ModeComplete Mode = "complete"
	// ModeAuto is ModeAssert where the machine-config-daemon is predicted to
	// skip after it, else ModeComplete.
	ModeAuto Mode = "auto"
)

// Modes are all modes.
func Modes() []Mode { return []Mode{ModeReport, ModeAssert, ModeComplete, ModeAuto} }

// Host paths of an act that are not the machine-config-operator's.
const (
	reposDir = "/etc/yum.repos.d"
	// revertUnitPath is the unit with which the daemon boots a node anew
	// (RevertServiceName in pkg/daemon/runtimeassets/revertservice.go).
	revertUnitPath = "/etc/systemd/system/machine-config-daemon-revert.service"
	// kubeletCertPath is the certificate that the kubelet has once it has
	// joined; the MCO's chrony-wait drop-in goes by it too.
	kubeletCertPath = "/var/lib/kubelet/pki/kubelet-client-current.pem"
	// maxRepos bounds the entries of reposDir.
	maxRepos = 128
)

// whyNoAct says why nothing may be done upon a verdict; empty where it may.
func whyNoAct(res *Result, root *hostfs.Root) string {
	v := res.Verdict
	switch {
	case v.Action != verdict.Skip || v.Reason != verdict.ReasonProven:
		return "the verdict is proceed"
	case v.Hypothetical || !v.Conclusive || v.Proof == "" || res.deployment == nil:
		return "the verdict is hypothetical"
	case !res.deployment.Confirmed && runsHere(root):
		return "the running root was not found among the deployments by device and inode"
	}
	if why := joined(root); why != "" {
		return why
	}
	return ""
}

// runsHere reports whether the root belongs to the running kernel: it is the
// live one, or its /proc tells of the same boot. There the kernel command line
// is not enough to know the booted deployment. Any other root, that of a test
// or of a machine that is emulated, has nothing but its command line.
func runsHere(root *hostfs.Root) bool {
	if root.Live() {
		return true
	}
	there, err := root.ReadFile(bootIDPath, maxSmallFile)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	own, ownErr := hostfs.Open("/")
	if err != nil || ownErr != nil {
		return true
	}
	defer own.Close()
	here, err := own.ReadFile(bootIDPath, maxSmallFile)
	return err != nil || bytes.Equal(bytes.TrimSpace(here), bytes.TrimSpace(there))
}

// joined says by which file the node has joined its cluster; empty where it has
// not. What cannot be looked for counts as there.
func joined(root *hostfs.Root) string {
	for _, name := range []string{machineconfig.NodeAnnotationsBakPath, machineconfig.CurrentConfigPath, kubeletCertPath} {
		switch found, err := root.Exists(name); {
		case err != nil:
			return "whether the node has joined is not known: looking for " + err.Error()
		case found:
			return "the node has joined: " + name + " exists"
		}
	}
	return ""
}

// chooseMode is the mode to act in: assert or complete, or why none.
func chooseMode(mode Mode, res *Result, mc verdict.MachineConfig) (Mode, string) {
	if mode == ModeAuto {
		mode = ModeComplete
		if res.after.WouldSkip {
			mode = ModeAssert
		}
	}
	if mode == ModeComplete && (len(mc.LayeringMarks) > 0 || mc.LayeredImage != "") {
		return "", "the MachineConfig is marked for on-cluster layering, which complete never finishes"
	}
	return mode, ""
}

// A plan is what an act is to change, in order.
type plan struct {
	changes []change
	// warnings are for what was left alone and does not matter.
	warnings []string
	// refusal says why nothing is to be done after all; empty where it is.
	refusal string
}

// makePlan reads every file that the mode changes and works out its new content.
// Files that are already as they should be are no change. Those in undone are
// not as they were when the facts were read. An error means that nothing may be
// done.
func (w *hostWriter) makePlan(root *hostfs.Root, res *Result, mode Mode, mc verdict.MachineConfig, undone []string) (plan, error) {
	var p plan
	if slices.Contains(undone, originPath(res)) || !namesTarget(res.Verdict.MCO) {
		if err := w.planOrigin(&p, root, res, mc); err != nil || p.refusal != "" {
			return p, err
		}
	}
	w.planAnnotations(&p, res.Verdict, mode, mc.Digest)
	if mode != ModeComplete {
		return p, nil
	}
	if found, err := root.Exists(revertUnitPath); err != nil || found {
		return p, fmt.Errorf("%s: the machine-config-daemon boots this node anew, which complete never finishes", revertUnitPath)
	}
	for _, step := range []func(*plan) error{w.planKubeconfig, func(p *plan) error { return w.planRepos(p, root) }, w.planEncapsulated} {
		if err := step(&p); err != nil {
			return p, err
		}
	}
	return p, nil
}

func originPath(res *Result) string { return res.deployment.Dir + ".origin" }

// planOrigin has the origin name the target.
func (w *hostWriter) planOrigin(p *plan, root *hostfs.Root, res *Result, mc verdict.MachineConfig) error {
	name := originPath(res)
	old, err := w.read(name, maxChangedFile)
	if err != nil {
		return err
	}
	text, err := nameImage(old.Content, mc.OSImageURL)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if bytes.Equal(text, old.Content) {
		return nil
	}
	if p.refusal, err = laterRefusal(root, res); err != nil || p.refusal != "" {
		return err
	}
	p.changes = append(p.changes, change{Kind: changeContent, Path: name, Old: old, New: text, Touch: deployDir(name)})
	return nil
}

// namesTarget: of the daemon's reasons not to skip none is about what the
// origin names.
func namesTarget(m verdict.MCO) bool {
	for _, r := range m.Why {
		if strings.HasPrefix(r.Code, "os-image-url") || r.Code == "machineconfig-unknown" {
			return false
		}
	}
	return true
}

// laterRefusal says whether rpm-ostree would refuse to install anything on the
// target later: it takes an image that is older than the booted commit for a
// downgrade. Only where the booted commit is another one than that of the
// target, and only where the origin then names an image.
func laterRefusal(root *hostfs.Root, res *Result) (string, error) {
	if p := res.Verdict.Proof; p != verdict.ProofOSTreeCommit && p != verdict.ProofContentChecksum {
		return "", nil
	}
	d, ok := res.Booted.Deployment.Get()
	if !ok {
		return "", errors.New("the booted deployment is not known")
	}
	when := d.Timestamp
	switch {
	case d.Kind == verdict.PlainCommit || d.Kind == verdict.ClientLayered && d.Base.Kind == verdict.PlainCommit:
		return "", nil
	case d.Kind == verdict.ClientLayered:
		sysroot, err := ostree.OpenSysroot(root)
		if err != nil {
			return "", err
		}
		base, err := sysroot.Repo().Commit(d.Base.Checksum)
		if err != nil {
			return "", err
		}
		when = base.Timestamp
	}
	target, ok := res.Target.Identity.InnerCommit.Get()
	if !ok {
		return "", errors.New("the target's ostree commit is not known")
	}
	if when > target.Timestamp {
		return "the booted commit is newer than the target's, so that rpm-ostree would refuse to install extensions on it later", nil
	}
	return "", nil
}

// planAnnotations adds the answer to the node's first annotations. They are
// never made: their existence alone tells the machine-config-daemon that it is
// bootstrapping. Whatever is wrong with them, they are left alone.
func (w *hostWriter) planAnnotations(p *plan, v verdict.Verdict, mode Mode, target verdict.Digest) {
	const name = machineconfig.NodeAnnotationsPath
	old, err := w.read(name, maxChangedFile)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var text []byte
	if err == nil {
		if text, err = annotate(old.Content, answerAnnotations(v, mode, target)); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
	}
	switch {
	case err != nil:
		p.warnings = append(p.warnings, "the node's annotations are left as they are: "+err.Error())
	case !bytes.Equal(text, old.Content):
		p.changes = append(p.changes, change{Kind: changeContent, Path: name, Old: old, New: text, Optional: true})
	}
}

// planKubeconfig follows updateKubeConfigPermission (pkg/daemon/update.go).
func (w *hostWriter) planKubeconfig(p *plan) error {
	const name, mode = machineconfig.BootstrapKubeconfigPath, 0o600
	old, err := w.read(name, maxChangedFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if old.Mode != mode {
		old.Content = nil // it holds a secret and does not change
		p.changes = append(p.changes, change{Kind: changeMode, Path: name, Old: old, NewMode: mode})
	}
	return nil
}

// planRepos follows the first ExecStartPre of machine-config-daemon-firstboot.service:
// s/enabled=1/enabled=0/ once a line, in every *.repo but hidden ones.
func (w *hostWriter) planRepos(p *plan, root *hostfs.Root) error {
	entries, err := root.ReadDir(reposDir, maxRepos)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !isRepo(e.Name()) {
			continue
		}
		name := path.Join(reposDir, e.Name())
		old, err := w.read(name, maxChangedFile)
		if err != nil {
			return err
		}
		if text := disableRepos(old.Content); !bytes.Equal(text, old.Content) {
			p.changes = append(p.changes, change{Kind: changeContent, Path: name, Old: old, New: text})
		}
	}
	return nil
}

func isRepo(base string) bool {
	return strings.HasSuffix(base, ".repo") && !strings.HasPrefix(base, ".")
}

func disableRepos(text []byte) []byte {
	lines := bytes.SplitAfter(text, []byte("\n"))
	for i, line := range lines {
		lines[i] = bytes.Replace(line, []byte("enabled=1"), []byte("enabled=0"), 1)
	}
	return bytes.Join(lines, nil)
}

// planEncapsulated is the commit point: once the file has its other name, the
// machine-config-daemon's units for the first boot do not run.
func (w *hostWriter) planEncapsulated(p *plan) error {
	const from, to = machineconfig.EncapsulatedPath, machineconfig.EncapsulatedBakPath
	old, err := w.read(from, maxMachineConfig)
	if err != nil {
		return err
	}
	if _, err := w.read(to, maxMachineConfig); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: is there already, so that a first boot was finished before", to)
	}
	p.changes = append(p.changes, change{Kind: changeName, Path: from, To: to, Old: old})
	return nil
}

// Codes of what can go wrong with an act.
const (
	codeAct         = "act-failed"
	codeActSpace    = "act-no-space"
	codeActReadOnly = "act-read-only"
	codeUnfinished  = "act-unfinished"
)

func actCode(err error) string {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return codeActSpace
	case errors.Is(err, unix.EROFS):
		return codeActReadOnly
	}
	return codeAct
}
