package ostree

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/oneboot/oneboot/pkg/verdict"
)

const (
	maxStateFiles = 64

	// liveStamp and the refs are rpm-ostree's (live.rs).
	liveStamp      = "rpmostree-is-live.stamp"
	liveRef        = "rpmostree/live-apply"
	liveRefPending = "rpmostree/live-apply-inprogress"
)

type divergenceList []verdict.Divergence

func (l *divergenceList) add(kind verdict.DivergenceKind, format string, args ...any) {
	*l = append(*l, verdict.Divergence{Kind: kind, Detail: fmt.Sprintf(format, args...)})
}

// divergences looks for every way in which the running system may not be, or
// may not stay, what the deployed commit says. It returns all of them or an
// error.
func (r *factReader) divergences() ([]verdict.Divergence, error) {
	var l divergenceList
	for _, look := range []func(*divergenceList) error{
		r.bootOrder, r.transientState, r.softReboot, r.fromOrigin, r.fromCommit, r.partial,
	} {
		if err := look(&l); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (r *factReader) bootOrder(l *divergenceList) error {
	def, err := r.s.Default()
	if err != nil {
		return err
	}
	if !def.same(r.b.Deployment) {
		l.add(verdict.NotDefault, "%s boots next", def.Name())
	}
	// Whatever the file says: where it is, something happens at shutdown.
	names, err := r.s.listing("/run/ostree")
	if err != nil {
		return err
	}
	for _, name := range names {
		if name != path.Base(runStaged) {
			continue
		}
		staged, err := r.s.Staged()
		switch {
		case err != nil:
			l.add(verdict.Staged, "%v", err)
		case staged == nil:
			l.add(verdict.Staged, "%s", runStaged)
		default:
			l.add(verdict.Staged, "%s", staged.Name())
		}
	}
	if e := r.b.Entry; e != nil && len(e.Initrds) > 1 {
		l.add(verdict.InitramfsRegenerated, "boot entry %s has %d initrds", e.File, len(e.Initrds))
	}
	return nil
}

// listing returns the names in a folder, links not followed; none where the
// folder is absent.
func (s *Sysroot) listing(dir string) ([]string, error) {
	list, err := s.root.ReadDir(dir, maxStateFiles)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading transient state: %w", err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names, nil
}

// transientState reads the deployment's folder below /run.
func (r *factReader) transientState(l *divergenceList) error {
	dir := path.Join(runState, fmt.Sprintf("%s.%d", r.b.Checksum, r.b.Serial))
	names, err := r.s.listing(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "unlocked-"):
			l.add(verdict.Unlocked, "%s", strings.TrimPrefix(name, "unlocked-"))
		case name == liveStamp:
			l.add(verdict.LiveApplied, "%s", r.liveCommits())
		default:
			l.add(verdict.LocalAssembly, "%s is not known", path.Join(dir, name))
		}
	}
	return nil
}

// liveCommits names what was applied live, for show.
func (r *factReader) liveCommits() string {
	var out []string
	for _, ref := range []string{liveRef, liveRefPending} {
		if c, err := r.s.repo.ResolveRef(ref); err == nil {
			out = append(out, ref+" is "+string(c))
		}
	}
	return strings.Join(out, ", ")
}

func (r *factReader) softReboot(l *divergenceList) error {
	if r.b.SoftRebooted != "" {
		l.add(verdict.SoftRebooted, "%s", r.b.SoftRebooted)
	}
	ok, err := r.s.root.Exists(runNextrootBooted)
	if err != nil {
		return fmt.Errorf("reading transient state: %w", err)
	}
	if ok {
		// It is there from the preparation of a soft reboot until the end of
		// the boot that follows.
		l.add(verdict.SoftRebootPending, "%s", runNextrootBooted)
	}
	names, err := r.s.listing(runNextroot)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		l.add(verdict.SoftRebootPending, "%s is not empty", runNextroot)
	}
	return nil
}

func (r *factReader) fromOrigin(l *divergenceList) error {
	o := r.origin
	if o.Conflict != "" {
		l.add(verdict.OriginConflict, "%s", o.Conflict)
	}
	if o.Refspec == "" && o.BaseRefspec == "" && o.ContainerImageReference == "" {
		l.add(verdict.OriginConflict, "[origin] names neither a refspec nor a container image")
	}
	if o.Unlocked != "" {
		l.add(verdict.Unlocked, "[origin] unlocked=%s", o.Unlocked)
	}
	for _, v := range []struct {
		kind verdict.DivergenceKind
		key  string
		list []string
	}{
		{verdict.PackageOverride, "[overrides] replace-local", o.OverrideReplaceLocal},
		{verdict.PackageOverride, "[overrides] replace", o.OverrideReplace},
		{verdict.InitramfsRegenerated, "[rpmostree] initramfs-args", o.InitramfsArgs},
		{verdict.InitramfsRegenerated, "[rpmostree] initramfs-etc", o.InitramfsEtc},
		{verdict.LocalAssembly, "[modules]", o.Modules},
	} {
		if len(v.list) > 0 {
			l.add(v.kind, "%s=%s", v.key, strings.Join(v.list, ";"))
		}
	}
	if o.RegenerateInitramfs {
		l.add(verdict.InitramfsRegenerated, "[rpmostree] regenerate-initramfs")
	}
	if o.CLIWrap {
		l.add(verdict.LocalAssembly, "[rpmostree] cliwrap")
	}
	if o.OverrideCommit != "" {
		l.add(verdict.LocalAssembly, "[origin] override-commit=%s", o.OverrideCommit)
	}
	if o.UnconfiguredState != "" {
		l.add(verdict.LocalAssembly, "[origin] unconfigured-state=%s", o.UnconfiguredState)
	}
	for _, k := range o.Other {
		l.add(verdict.LocalAssembly, "the origin's [%s] %s is not known", k.Group, k.Key)
	}
	return nil
}

// fromCommit looks for the marks of replaced packages in a client-layered
// commit. Layered and removed ones are no divergence of their own: the checks
// of extensions and kernel type answer for them.
func (r *factReader) fromCommit(l *divergenceList) error {
	kind, err := commitKind(r.commit)
	if err != nil {
		return fmt.Errorf("reading commit %s: %w", r.b.Checksum, err)
	}
	// The key of remote replacements is only in client layers of version 6.
	for _, key := range []string{keyReplaced, keyReplacedRemote} {
		n, ok, err := r.commit.Metadata.Len(key)
		if err == nil && !ok && key == keyReplaced && kind == verdict.ClientLayered {
			err = errors.New("layered, but no metadata key " + key)
		}
		if err != nil {
			return fmt.Errorf("reading commit %s: %w", r.b.Checksum, err)
		}
		if n > 0 {
			l.add(verdict.PackageOverride, "the commit's %s has %d entries", key, n)
		}
	}
	modules, _, err := r.commit.Metadata.Strings("rpmostree.modules")
	if err != nil {
		return fmt.Errorf("reading commit %s: %w", r.b.Checksum, err)
	}
	if kind == verdict.ClientLayered && len(modules) > 0 {
		l.add(verdict.LocalAssembly, "the commit's modules are %s", strings.Join(modules, ";"))
	}
	return nil
}

func (r *factReader) partial(l *divergenceList) error {
	sums := []verdict.Checksum{r.b.Checksum}
	if kind, err := commitKind(r.commit); err == nil && kind == verdict.ClientLayered && r.commit.Parent != "" {
		sums = append(sums, r.commit.Parent)
	}
	for _, c := range sums {
		ok, err := r.s.repo.CommitPartial(c)
		if err != nil {
			return err
		}
		if ok {
			l.add(verdict.CommitPartial, "%s", path.Join(r.s.repo.dir, "state", string(c)+".commitpartial"))
		}
	}
	return nil
}
