// Package daemon is the firstboot run: it gathers the facts of a host and of
// its target, has them decided and writes the record. It is the only room that
// changes a host.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/machineconfig"
	"github.com/oneboot/oneboot/pkg/osimage"
	"github.com/oneboot/oneboot/pkg/ostree"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// Options say what to analyze and how far to go.
type Options struct {
	// Root is the host's root directory.
	Root string
	// FastReboot is what the record says was asked for: [FastRebootKexec] or nothing.
	FastReboot string
	// Unbooted says that the root is a disk that is not running.
	Unbooted bool
	// MachineConfigFile replaces the node's encapsulated MachineConfig; a path
	// of the caller, not below the root.
	MachineConfigFile string
	// StatusFile is a saved rpm-ostree status --json; a path of the caller, or
	// "-" for its standard input. It is compared with the sysroot below the
	// root. Where there is none it speaks for itself, and what a running host
	// tells is unknown: the root may be another machine's. The verdict is
	// hypothetical.
	StatusFile string
	// Target replaces osImageURL.
	Target string
	// AuthFile replaces the host's registry credentials; a path of the caller.
	AuthFile string
	// Timeout bounds the whole run.
	Timeout time.Duration
	// RetryTransport tries again after transport errors until the timeout.
	RetryTransport bool
	// Offline asks no registry.
	Offline bool
	// Full gathers every fact, not only those that could make a skip.
	Full bool
	// SkipChecks are left out of the verdict.
	SkipChecks []verdict.CheckName

	// predictAct asks for Result.after.
	predictAct bool
}

// A Result is a verdict with what it cost to reach.
type Result struct {
	Verdict  verdict.Verdict
	Transfer osimage.Transfer
	Seconds  float64
	// Interrupted says that the caller gave up before there was an answer.
	Interrupted bool
	// Booted, Target and Policy are what the verdict was decided upon.
	Booted verdict.Booted
	Target verdict.Target
	Policy verdict.Policy

	// deployment is nil where it could not be found.
	deployment *ostree.Booted
	// after predicts the machine-config-daemon once the origin names the
	// target; of a skip only, and where Options asks for it.
	after verdict.MCO
}

// Codes of errors in the verdict that this room adds; those of images are
// osimage's.
const (
	codeMachineConfig        = "machineconfig-invalid"
	codeMachineConfigMissing = "machineconfig-missing"
	codeNoHost               = "no-ostree-host"
	codeSysroot              = "sysroot-unreadable"
	codeTarget               = "target-invalid"
	codeTargetUnreadable     = "target-unreadable"
	codeStatus               = "status-invalid"
	codeRPMOSTree            = "rpm-ostree-failed"
	codeInterrupted          = "interrupted"
	codeInternal             = "internal-error"
)

// maxMachineConfig bounds a MachineConfig: the MCO allows 1.5 MiB rendered.
const maxMachineConfig = 4 << 20

// A run is one analysis: the facts so far and what went wrong.
type run struct {
	opts   Options
	root   *hostfs.Root
	booted verdict.Booted
	target verdict.Target
	// stranger: nothing but a saved status is known of the host.
	stranger bool
	// noHost says that there is no ostree host below the root.
	noHost error
	// etc is put before /etc: empty on a booted root, the default
	// deployment's folder on an unbooted disk.
	etc string
	// sysroot and deployment are nil where they could not be read.
	sysroot    *ostree.Sysroot
	deployment *ostree.Booted
	config     *osimage.Config
	image      *osimage.Image
	imageErr   error
	// extensions is the extensions image, once it was asked for.
	extensions *osimage.Image
	warnings   []string
	errors     []verdict.Error
	after      verdict.MCO
}

// Analyze decides and changes nothing. Whatever goes wrong with the host, the
// registry or the input is in the verdict, which then says proceed; the error
// is only for a root that cannot be opened or is not a booted one. Where the
// context is cancelled nothing of what was learned counts.
func Analyze(caller context.Context, opts Options) (*Result, error) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(caller, opts.Timeout)
	defer cancel()
	root, err := hostfs.Open(opts.Root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	r := &run{opts: opts, root: root}
	r.stranger = r.strangeRoot()
	if !opts.Unbooted && !r.stranger {
		if err := checkBooted(root, opts.Root); err != nil {
			return nil, err
		}
	}
	res := &Result{}
	res.Verdict, res.Transfer = r.analyze(ctx)
	if errors.Is(caller.Err(), context.Canceled) {
		// What it cut short is of no use to anyone.
		r.errors = nil
		res.Interrupted, res.Verdict = true, r.undecided(codeInterrupted, "", errInterrupted)
	}
	res.Booted, res.Target, res.Policy = r.booted, r.target, r.policy()
	res.deployment, res.after = r.deployment, r.after
	res.Seconds = time.Since(start).Seconds()
	return res, nil
}

// checkBooted refuses a root without the kernel's files: no system runs there.
func checkBooted(root *hostfs.Root, dir string) error {
	if _, err := root.Stat(cmdlinePath); errors.Is(err, fs.ErrNotExist) {
		if _, err := ostree.OpenSysroot(root); errors.Is(err, ostree.ErrNotOSTree) {
			return fmt.Errorf("%w, and no %s", noHost(dir), cmdlinePath)
		}
		return fmt.Errorf("%s is not there below --root %s: mount the running host's /proc there, or use --unbooted for a disk that is not running", cmdlinePath, dir)
	}
	return nil
}

// analyze gathers and decides. A fault in this program or in a library, as far
// as it shows in this goroutine, is an error in the verdict like any other.
func (r *run) analyze(ctx context.Context) (v verdict.Verdict, transfer osimage.Transfer) {
	defer func() {
		if fault := recover(); fault != nil {
			where := faultyFunction()
			v = r.undecided(codeInternal, where, fmt.Errorf("internal error, please report it: %.200q in %s", fmt.Sprint(fault), where))
		}
		for _, image := range []*osimage.Image{r.image, r.extensions} {
			if image != nil {
				transfer = transfer.Plus(image.Transfer())
			}
		}
	}()
	defer r.close()
	r.gatherHost(ctx)
	r.gatherMachineConfig()
	r.openTarget(ctx)
	return r.decide(ctx), osimage.Transfer{}
}

var errInterrupted = errors.New("a signal ended the run before there was an answer")

// undecided is the verdict after a panic or a signal. The facts gathered so far
// may be half of the truth, so none of them takes part.
func (r *run) undecided(code, source string, err error) verdict.Verdict {
	r.fail(code, source, err)
	r.booted, r.target = unknownHost(err.Error()), verdict.Target{MachineConfig: verdict.Unknown[verdict.MachineConfig](err.Error())}
	v := verdict.Decide(r.booted, r.target, r.policy())
	// Even where every check is left out.
	v.Action, v.Conclusive, v.Reason, v.Proof = verdict.Proceed, false, verdict.Reason(verdict.CheckMachineConfig+"-unknown"), ""
	v.Warnings, v.Errors = append(v.Warnings, r.warnings...), append(v.Errors, r.errors...)
	return v
}

// faultyFunction names the function that panicked, to be called by the deferred
// function that recovers.
func faultyFunction() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	panicked := false
	for {
		f, more := frames.Next()
		inRuntime := strings.HasPrefix(f.Function, "runtime.")
		if panicked && !inRuntime {
			return fmt.Sprintf("%s (%s:%d)", f.Function, path.Base(f.File), f.Line)
		}
		panicked = panicked || f.Function == "runtime.gopanic"
		if !more {
			return "an unknown function"
		}
	}
}

// policy asks for every fact where a status speaks for itself: it cannot make a
// skip, so that what could make one would be nothing.
func (r *run) policy() verdict.Policy {
	return verdict.Policy{
		SkipChecks: r.opts.SkipChecks, Full: r.opts.Full || r.stranger, Unbooted: r.opts.Unbooted, SavedStatus: r.opts.StatusFile != "",
		FastReboot:  r.opts.FastReboot == FastRebootKexec,
		OtherTarget: r.opts.Target != "" || r.opts.MachineConfigFile != "" && !r.opts.Unbooted,
	}
}

// decide asks for facts in the order in which the verdict needs them, until it
// is final.
func (r *run) decide(ctx context.Context) verdict.Verdict {
	policy := r.policy()
	v := verdict.Decide(r.booted, r.target, policy)
	asked := map[verdict.Need]bool{}
	for {
		next, ok := firstNew(v.Needs, asked)
		if !ok {
			break
		}
		asked[next] = true
		r.gather(ctx, next)
		v = verdict.Decide(r.booted, r.target, policy)
	}
	if r.opts.predictAct && v.Action == verdict.Skip {
		r.after = r.predict(ctx, policy)
	}
	v.Warnings = append(v.Warnings, r.warnings...)
	v.Errors = append(v.Errors, r.errors...)
	return v
}

// predict says what the machine-config-daemon does once the origin names the
// target. The packages that this rests on are read where they alone matter.
func (r *run) predict(ctx context.Context, policy verdict.Policy) verdict.MCO {
	mc, _ := r.target.MachineConfig.Get()
	for {
		b := r.booted
		b.OriginReference, b.LegacyOriginReference = verdict.Known(mc.OSImageURL), mc.OSImageURL
		v := verdict.Decide(b, r.target, policy)
		if !slices.Contains(v.Needs, verdict.NeedPackages) || r.booted.Packages.Gathered() {
			return v.MCO
		}
		r.gather(ctx, verdict.NeedPackages)
	}
}

// firstNew finds the cheapest need not asked for yet. No need is asked for
// twice, so that the loop ends.
func firstNew(needs []verdict.Need, asked map[verdict.Need]bool) (verdict.Need, bool) {
	for _, n := range verdict.AllNeeds() {
		for _, have := range needs {
			if have == n && !asked[n] {
				return n, true
			}
		}
	}
	return "", false
}

// close lets go of the target; what cannot be removed is only worth a word,
// but the verdict is out already.
func (r *run) close() {
	for _, image := range []*osimage.Image{r.image, r.extensions} {
		if image != nil {
			_ = image.Close()
		}
	}
	if r.config != nil {
		_ = r.config.Close()
	}
}

func (r *run) fail(code, source string, err error) {
	if e := (verdict.Error{Code: code, Message: err.Error(), Source: source}); !slices.Contains(r.errors, e) {
		r.errors = append(r.errors, e)
	}
}

// gatherMachineConfig reads what the node is to become.
func (r *run) gatherMachineConfig() {
	mc, source, err := r.readMachineConfig()
	if errors.Is(err, errNoMachineConfig) && r.noHost != nil {
		// No wonder: that is all there is to say.
		r.target.MachineConfig = verdict.Unknown[verdict.MachineConfig](r.noHost.Error())
		return
	}
	if err == nil && r.opts.Target != "" {
		mc, err = withTarget(mc, r.opts.Target)
		source = "--target"
	}
	if err != nil {
		r.target.MachineConfig = verdict.Unknown[verdict.MachineConfig](err.Error())
		code := codeMachineConfig
		switch {
		case errors.Is(err, errNoMachineConfig):
			code = codeMachineConfigMissing
		case source == "--target":
			code = codeTarget
		}
		r.fail(code, source, err)
		return
	}
	r.target.MachineConfig = verdict.Known(mc)
}

func (r *run) readMachineConfig() (verdict.MachineConfig, string, error) {
	var (
		raw []byte
		err error
		mc  verdict.MachineConfig
	)
	source := r.opts.MachineConfigFile
	if source != "" {
		raw, err = readCallerFile(source, maxMachineConfig)
		if err == nil {
			mc, err = machineconfig.ParseManifest(raw)
		}
	} else {
		source = r.etc + machineconfig.EncapsulatedPath
		raw, err = r.root.ReadFile(source, maxMachineConfig)
		if r.opts.Target != "" && errors.Is(err, fs.ErrNotExist) {
			// Only the content is asked about: nothing else is wanted.
			return verdict.MachineConfig{KernelType: "default"}, source, nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			return mc, source, r.noMachineConfig(source)
		}
		if err == nil {
			mc, err = machineconfig.Parse(raw)
		}
	}
	// The target takes the place of an osImageURL that is no image.
	var badURL *machineconfig.OSImageURLError
	if r.opts.Target != "" && errors.As(err, &badURL) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("reading MachineConfig %s: %w", source, err)
	}
	return mc, source, err
}

var errNoMachineConfig = errors.New("no MachineConfig")

// noMachineConfig says why there may be none, and what there is in its place.
func (r *run) noMachineConfig(source string) error {
	if r.stranger {
		return fmt.Errorf("%w at %s: name the node's with --machineconfig", errNoMachineConfig, source)
	}
	hint := ""
	if ok, err := r.root.Exists(r.etc + machineconfig.EncapsulatedBakPath); ok && err == nil {
		hint = "; to compare with what it joined with: --machineconfig " + filepath.Join(r.opts.Root, r.etc, machineconfig.EncapsulatedBakPath)
	}
	return fmt.Errorf("%w at %s: this node has joined already, or no machine-config-server made it%s", errNoMachineConfig, source, hint)
}

// readCallerFile reads a file that a flag names, as the caller sees it.
func readCallerFile(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readBounded(f, limit)
}
