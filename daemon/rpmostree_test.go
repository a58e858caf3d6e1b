package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/oneboot/oneboot/pkg/verdict"
)

const savedStatusFile = "../pkg/rpmostree/testdata/container.json"

// fakeProgram writes a program that stands in for rpm-ostree. $DIR is a folder
// of its own.
func fakeProgram(t *testing.T, script string) (program, dir string) {
	t.Helper()
	dir = t.TempDir()
	status, err := filepath.Abs(savedStatusFile)
	if err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "rpm-ostree")
	text := "#!/bin/sh\nDIR=" + dir + "\nSTATUS=" + status + "\n" + script + "\n"
	if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return program, dir
}

// alive reports whether the process whose number a file holds still runs.
func alive(t *testing.T, file string) bool {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
	return syscall.Kill(pid, 0) == nil
}

func TestFreshStatus(t *testing.T) {
	tests := []struct {
		name, script string
		code, words  string // of the error; none where empty
		took         time.Duration
	}{
		{"sound", `cat "$STATUS"`, "", "", 0},
		{"a warning beside it", `cat "$STATUS"; echo "note: reload" >&2`, "", "", 0},
		{"arguments and environment", `[ "$*" = "status --json" ] && [ "$LC_ALL" = C ] && [ -z "$HOME" ] && ! read x && cat "$STATUS"`, "", "", 0},
		{"a failure in words", `echo "error: Couldn't start daemon:" >&2; echo "	Reading deployment 0" >&2; exit 1`,
			codeRPMOSTree, "exit status 1: error: Couldn't start daemon: Reading deployment 0", 0},
		{"a failure after a sound status", `cat "$STATUS"; exit 1`, codeRPMOSTree, "exit status 1", 0},
		{"a signal", `kill -SEGV $$`, codeRPMOSTree, "segmentation fault", 0},
		{"a long failure", `head -c 100000 /dev/zero | tr '\0' x >&2; exit 1`, codeRPMOSTree, strings.Repeat("x", 300) + "...", 0},
		{"control characters", `printf 'a\033[31mb\377c\n' >&2; exit 1`, codeRPMOSTree, "exit status 1: a [31mb?c", 0},
		{"nothing", `echo "error: timed out" >&2`, codeStatus, "wrote nothing to its standard output: error: timed out", 0},
		{"null", `echo null`, codeStatus, "does not start with a JSON object", 0},
		{"no deployments", `echo '{"deployments":null}'`, codeStatus, "rpm-ostree saw no ostree system", 0},
		{"garbage", `head -c 1000 /dev/urandom | tr -d '{'`, codeStatus, "does not start with a JSON object", 0},
		{"cut off", `head -c 500 "$STATUS"`, codeStatus, "the output is cut off", 0},
		{"on standard error only", `cat "$STATUS" >&2`, codeStatus, "wrote nothing to its standard output", 0},
		{"1 GiB", `head -c 1073741824 /dev/zero`, codeRPMOSTree, "it wrote more than 16777216 bytes", 3 * time.Second},
		{"1 GiB of errors", `head -c 1073741824 /dev/zero >&2; cat "$STATUS"`, "", "", 8 * time.Second},
		{"hangs", `sleep 60 & echo $! >$DIR/child; wait`, codeRPMOSTree, "it did not end in time", 3 * time.Second},
		{"hangs and ignores signals", `trap "" TERM INT PIPE; while :; do sleep 1; done`, codeRPMOSTree, "it did not end in time", 3 * time.Second},
		{"a child keeps the output open", `sleep 60 & echo $! >$DIR/child; cat "$STATUS"`, codeRPMOSTree, "kept its output open", 3 * time.Second},
		{"no program", `rm "$DIR/rpm-ostree"; exit 127`, codeRPMOSTree, "exit status 127", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			program, dir := fakeProgram(t, tt.script)
			ctx := context.Background()
			if strings.HasPrefix(tt.name, "hangs") {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
			}
			before := unknownHost("a fault")
			r := &run{booted: before}
			start := time.Now()
			r.freshStatus(ctx, program)
			if took := time.Since(start); took > max(tt.took, 10*time.Second) {
				t.Errorf("took %s", took)
			}
			_, isKnown := r.booted.Deployment.Get()
			switch {
			case tt.code == "":
				if len(r.errors) > 0 || !isKnown {
					t.Errorf("got errors %+v, deployment known: %t", r.errors, isKnown)
				}
			case len(r.errors) != 1 || r.errors[0].Code != tt.code || r.errors[0].Source != program || isKnown:
				t.Errorf("got errors %+v, deployment known: %t", r.errors, isKnown)
			case !strings.Contains(r.errors[0].Message, tt.words) || strings.ContainsAny(r.errors[0].Message, "\n\t\x1b") || len(r.errors[0].Message) > 700:
				t.Errorf("got %q, want %q in it", r.errors[0].Message, tt.words)
			}
			if _, err := os.Stat(filepath.Join(dir, "child")); err == nil && alive(t, filepath.Join(dir, "child")) {
				t.Error("a process lives on")
			} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		})
	}
}

// What runs is bounded in memory too.
func TestFreshStatusMemory(t *testing.T) {
	program, _ := fakeProgram(t, `cat /dev/zero`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, _, err := runStatus(context.Background(), program); err == nil {
		t.Error("no error")
	}
	runtime.ReadMemStats(&after)
	if got := after.Sys - before.Sys; got > 64<<20 {
		t.Errorf("%d MiB of memory for at most %d MiB of output", got>>20, maxStatus>>20)
	}
}

func TestFreshStatusWithoutTheProgram(t *testing.T) {
	r := &run{booted: unknownHost("a fault")}
	r.freshStatus(context.Background(), filepath.Join(t.TempDir(), "rpm-ostree"))
	if len(r.errors) > 0 || r.booted.Deployment.Why() != "a fault" {
		t.Errorf("got %+v, %q", r.errors, r.booted.Deployment.Why())
	}
	program, _ := fakeProgram(t, "")
	if err := os.Chmod(program, 0o600); err != nil {
		t.Fatal(err)
	}
	r.freshStatus(context.Background(), program)
	if len(r.errors) != 1 || r.errors[0].Code != codeRPMOSTree || !strings.Contains(r.errors[0].Message, "permission denied") {
		t.Errorf("got %+v", r.errors)
	}
}

func TestStatusCouldAnswer(t *testing.T) {
	whole := func(kind verdict.DeploymentKind) verdict.Booted {
		b := verdict.Booted{Deployment: verdict.Known(verdict.Deployment{Kind: kind}), OriginReference: verdict.Known(""),
			Identity: verdict.UnknownIdentity("no image")}
		if kind == verdict.PlainCommit {
			b.Identity.InnerCommit = verdict.Known(verdict.InnerCommit{})
			return b
		}
		b.Identity.ManifestDigest, b.Identity.ConfigDigest = verdict.Known(verdict.Digest("")), verdict.Known(verdict.Digest(""))
		b.Identity.DiffIDs, b.Identity.Layers = verdict.Known([]verdict.Digest{}), verdict.Known(0)
		return b
	}
	layered := func(base verdict.DeploymentKind) verdict.Booted {
		b := whole(base)
		b.Deployment = verdict.Known(verdict.Deployment{Kind: verdict.ClientLayered, Base: verdict.Base{Kind: base}})
		return b
	}
	without := func(b verdict.Booted, edit func(*verdict.Booted)) verdict.Booted {
		edit(&b)
		return b
	}
	tests := []struct {
		name string
		b    verdict.Booted
		want bool
	}{
		{"nothing", verdict.Booted{}, true},
		{"no deployment", unknownHost("a fault"), true},
		{"a plain commit has no digests", whole(verdict.PlainCommit), false},
		{"a container", whole(verdict.ContainerImage), false},
		{"layered on a commit", layered(verdict.PlainCommit), false},
		{"layered on a container", layered(verdict.ContainerImage), false},
		{"an origin", without(whole(verdict.PlainCommit), func(b *verdict.Booted) { b.OriginReference = verdict.Unknown[string]("a fault") }), true},
		{"a commit", without(whole(verdict.PlainCommit), func(b *verdict.Booted) { b.Identity.InnerCommit = verdict.Unknown[verdict.InnerCommit]("a fault") }), true},
		// A status shows the label only.
		{"the commit in an image", without(whole(verdict.ContainerImage), func(b *verdict.Booted) { b.Identity.InnerCommit = verdict.Unknown[verdict.InnerCommit]("a fault") }), false},
		{"a manifest digest", without(layered(verdict.ContainerImage), func(b *verdict.Booted) { b.Identity.ManifestDigest = verdict.Unknown[verdict.Digest]("a fault") }), true},
		{"diff ids", without(whole(verdict.ContainerImage), func(b *verdict.Booted) { b.Identity.DiffIDs = verdict.Unknown[[]verdict.Digest]("a fault") }), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := statusCouldAnswer(tt.b); got != tt.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// A status that cannot be read is no comparison: what the sysroot knows is not
// enough then.
func TestSavedStatusThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	empty, large := filepath.Join(dir, "empty"), filepath.Join(dir, "large")
	if err := errors.Join(os.WriteFile(empty, nil, 0o600), os.WriteFile(large, nil, 0o600), os.Truncate(large, 1<<40)); err != nil {
		t.Fatal(err)
	}
	for name, words := range map[string]string{
		filepath.Join(dir, "absent"): "no such file", dir: "is a directory", empty: "it is empty",
		large: "larger than the limit of 16777216 bytes", pipe: "it did not end: context deadline exceeded",
	} {
		t.Run(filepath.Base(name), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			defer cancel()
			r := &run{opts: Options{StatusFile: name}, booted: verdict.Booted{Deployment: verdict.Known(verdict.Deployment{})}}
			if name == large {
				ctx = context.Background()
			}
			r.gatherStatus(ctx)
			if len(r.errors) != 1 || r.errors[0].Code != codeStatus || r.errors[0].Source != name || !strings.Contains(r.errors[0].Message, words) {
				t.Errorf("got %+v, want %q", r.errors, words)
			}
			if d, ok := r.booted.Deployment.Get(); !ok || !strings.HasPrefix(d.Unseen, "what rpm-ostree says: ") {
				t.Errorf("got %+v", d)
			}
		})
	}
}
