package imports

import (
	"slices"
	"testing"
)

// What the rules are worth: made-up edges that they must refuse or allow.
func TestEdges(t *testing.T) {
	tests := []struct {
		from, to string
		allowed  bool
	}{
		{"cmd/oneboot", "~daemon", true},
		{"cmd/oneboot", "~pkg/record", true},
		{"cmd/oneboot", "github.com/spf13/cobra", true},
		{"daemon", "~pkg/osimage", true},
		{"daemon", "os/exec", true},
		{"pkg/osimage", "go.podman.io/image/v5/docker", true},
		{"pkg/osimage", "net/http", true},
		{"pkg/ostree", "~pkg/ostree/format", true},
		{"pkg/machineconfig", "~pkg/verdict", true},
		{"pkg/machineconfig", "github.com/distribution/reference", true},
		{"pkg/machineconfig", "github.com/openshift/machine-config-operator/pkg/daemon/constants", true},
		{"pkg/controller", "~pkg/api/v1alpha1", true},
		{"pkg/controller", "sigs.k8s.io/controller-runtime", true},
		{"cmd/oneboot-cluster", "~pkg/controller", true},
		{"pkg/controller/node", "~pkg/controller", true},
		{"test/e2e", "~daemon", true},
		{"test/nativeimage", "~test/sysroot", true},

		{"daemon", "~cmd/oneboot", false},
		{"pkg/record", "~daemon", false},
		{"pkg/verdict", "~pkg/ostree/format", false},
		{"pkg/verdict", "~pkg/hostfs", false},
		{"pkg/verdict", "github.com/spf13/cobra", false},
		{"pkg/verdict", "time", false},
		{"pkg/verdict", "os", false},
		{"pkg/verdict", "log/slog", false},
		{"pkg/ostree/format", "~pkg/ostree", false},
		{"pkg/ostree", "~pkg/rpmdb", true},
		{"pkg/rpmdb", "~pkg/ostree", false},
		{"pkg/rpmdb", "os", false},
		{"pkg/rpmdb", "modernc.org/sqlite", false},
		{"pkg/ostree/format", "~pkg/hostfs", false},
		{"pkg/ostree/format", "io/fs", true},
		{"pkg/ostree/format", "github.com/distribution/reference", false},
		{"pkg/hostfs", "~pkg/verdict", false},
		{"pkg/hostfs", "github.com/spf13/cobra", false},
		{"pkg/ostree", "~pkg/osimage", false},
		{"pkg/osimage", "~pkg/ostree", false},
		{"pkg/rpmostree", "~pkg/ostree", false},
		{"pkg/machineconfig", "~pkg/rpmostree", false},
		{"pkg/bootimage", "~pkg/osimage", false},
		{"pkg/forecast", "~pkg/record", false},
		{"daemon", "~pkg/controller", false},
		{"pkg/osimage", "os/exec", false},
		{"cmd/oneboot", "os/exec", false},
		{"pkg/ostree", "os", false},
		{"pkg/ostree", "log", false},
		{"pkg/osimage", "log/slog", false},
		{"daemon", "go.podman.io/image/v5/docker", false},
		{"cmd/oneboot", "go.podman.io/image/v5/types", false},
		{"daemon", "net/http", false},
		{"pkg/bootimage", "github.com/google/go-containerregistry/pkg/name", false},
		{"cmd/oneboot", "k8s.io/client-go/kubernetes", false},
		{"cmd/oneboot", "~pkg/controller", false},
		{"cmd/oneboot", "~pkg/api/v1alpha1", false},
		{"daemon", "github.com/openshift/api/machineconfiguration/v1", false},
		{"pkg/machineconfig", "sigs.k8s.io/yaml", false},
		{"pkg/osimage", "unsafe", false},
		{"daemon", "~test/sysroot", false},
		{"pkg/ostree", "~pkg/ostree/ostreetest", false},
		{"test/sysroot", "~pkg/ostree", false},
		{"test/nativeimage", "~pkg/ostree/format", false},
		{"pkg/cleverness", "fmt", false},
		{"daemon", "~pkg/cleverness", false},
		{"pkg/ostreeish", "fmt", false},
	}
	for _, tt := range tests {
		to := tt.to
		if to[0] == '~' {
			to = module + "/" + to[1:]
		}
		if why := edgeProblem(module+"/"+tt.from, to); (why == "") != tt.allowed {
			t.Errorf("%s imports %s: got %q, allowed is to be %v", tt.from, tt.to, why, tt.allowed)
		}
	}
}

func TestCalls(t *testing.T) {
	tests := []struct {
		from, pkg, function string
		allowed             bool
	}{
		{"daemon", "os", "WriteFile", true},
		{"daemon", "golang.org/x/sys/unix", "Renameat", true},
		{"daemon", "os", "Exit", false},
		{"cmd/oneboot", "os", "Exit", true},
		{"cmd/oneboot", "os", "Args", true},
		{"cmd/oneboot", "os", "ReadFile", false},
		{"cmd/oneboot", "os", "WriteFile", false},
		{"pkg/hostfs", "os", "OpenFile", true},
		{"pkg/hostfs", "os", "Create", false},
		{"pkg/hostfs", "golang.org/x/sys/unix", "O_CREAT", false},
		{"pkg/hostfs", "golang.org/x/sys/unix", "Unlinkat", false},
		{"pkg/hostfs", "golang.org/x/sys/unix", "O_RDONLY", true},
		{"pkg/osimage", "os", "Exit", false},
		{"pkg/osimage", "os", "MkdirTemp", true},
		{"pkg/record", "os", "Rename", false},
		{"test/sysroot", "os", "RemoveAll", true},
	}
	for _, tt := range tests {
		if why := callProblem(module+"/"+tt.from, tt.pkg, tt.function); (why == "") != tt.allowed {
			t.Errorf("%s calls %s.%s: got %q, allowed is to be %v", tt.from, tt.pkg, tt.function, why, tt.allowed)
		}
	}
}

// No two readers may be in reach of each other, whichever are added.
func TestReadersNeverMeet(t *testing.T) {
	var readers []string
	for _, r := range rooms() {
		if r.level == levelReader {
			readers = append(readers, r.path)
		}
	}
	if len(readers) != 6 || !slices.Contains(readers, "pkg/bootimage") {
		t.Fatalf("got readers %v", readers)
	}
	for _, a := range readers {
		for _, b := range readers {
			if why := edgeProblem(module+"/"+a, module+"/"+b); (why == "") != (a == b) {
				t.Errorf("%s imports %s: got %q", a, b, why)
			}
		}
	}
}
