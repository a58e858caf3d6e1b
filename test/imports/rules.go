package imports

import (
	"fmt"
	"slices"
	"strings"
)

// module is the import path that all rooms are below.
const module = "github.com/oneboot/oneboot"

// A room is a folder with one task. A package belongs to the room with the
// longest path that is its own or a parent's.
type room struct {
	path string
	// level orders the rooms: one imports only from lower levels.
	level int
	// reader marks the readers of outside bytes. They return values: they
	// print nothing and open nothing but through hostfs.
	reader bool
}

const (
	levelLeaf = iota
	levelFormat
	levelReader
	levelAccount
	levelReport
	levelRun
	levelCommand
	levelTest
)

// rooms are those of the design, also where they are not built yet.
func rooms() []room {
	return []room{
		{path: "pkg/verdict", level: levelLeaf, reader: true},
		{path: "pkg/hostfs", level: levelLeaf},
		{path: "pkg/api", level: levelLeaf},
		{path: "pkg/ostree/format", level: levelFormat, reader: true},
		{path: "pkg/rpmdb", level: levelFormat, reader: true},
		{path: "pkg/ostree", level: levelReader, reader: true},
		{path: "pkg/rpmostree", level: levelReader, reader: true},
		{path: "pkg/machineconfig", level: levelReader, reader: true},
		{path: "pkg/osimage", level: levelReader},
		{path: "pkg/bootimage", level: levelReader},
		{path: "pkg/disk", level: levelReader, reader: true},
		{path: "pkg/forecast", level: levelAccount, reader: true},
		{path: "pkg/payload", level: levelAccount},
		{path: "pkg/fleet", level: levelReport, reader: true},
		{path: "pkg/record", level: levelAccount, reader: true},
		{path: "pkg/capture", level: levelAccount, reader: true},
		{path: "pkg/metrics", level: levelReport},
		{path: "daemon", level: levelRun},
		{path: "pkg/controller", level: levelRun},
		{path: "cmd/internal/manpage", level: levelRun},
		{path: "cmd/oneboot", level: levelCommand},
		{path: "cmd/oneboot-cluster", level: levelCommand},
		{path: "cmd/internal/manpage/manpagetest", level: levelTest},
		{path: "pkg/ostree/ostreetest", level: levelTest},
		{path: "test", level: levelTest},
	}
}

// roomOf finds a package's room; the zero room where it is in none.
func roomOf(pkg string) room {
	name, ok := strings.CutPrefix(pkg, module+"/")
	if !ok {
		return room{}
	}
	var best room
	for _, r := range rooms() {
		if below(name, r.path) && len(r.path) > len(best.path) {
			best = r
		}
	}
	return best
}

// below reports whether path is prefix or in it.
func below(path, prefix string) bool {
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && (rest == "" || rest[0] == '/')
}

func belowAny(path string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return below(path, p) })
}

func standard(pkg string) bool {
	first, _, _ := strings.Cut(pkg, "/")
	return !strings.Contains(first, ".")
}

// edgeProblem says why one package must not import another; empty where it
// may.
func edgeProblem(from, to string) string {
	r := roomOf(from)
	switch {
	case r.path == "":
		return "the package is in no room of the design: add it to the table"
	case r.level == levelTest:
		return testProblem(from, to)
	case below(to, module):
		return ownProblem(r, to)
	case standard(to):
		return standardProblem(r, to)
	}
	return foreignProblem(r, to)
}

// testProblem keeps the parts that oneboot is measured against from being
// built on its own readers.
func testProblem(from, to string) string {
	for _, maker := range []string{"test/sysroot", "test/nativeimage", "test/registry"} {
		if below(from, module+"/"+maker) && below(to, module) && !below(to, module+"/test") {
			return "what the readers are measured against must not be made by them"
		}
	}
	return ""
}

func ownProblem(r room, to string) string {
	t := roomOf(to)
	switch {
	case t.path == "":
		return "the package is in no room of the design: add it to the table"
	case t.level == levelTest:
		return "only tests import what is made for tests"
	case t.path == r.path:
		return ""
	case r.level == levelReader && t.level == levelReader:
		return "readers never import each other"
	case t.level >= r.level:
		return fmt.Sprintf("%s is not below %s", t.path, r.path)
	case r.path == "pkg/ostree/format" && t.path != "pkg/verdict":
		return "it knows bytes only"
	case (t.path == "pkg/api" || t.path == "pkg/controller") && !clusterSide(r.path):
		return "Kubernetes belongs to the cluster side"
	}
	return ""
}

func clusterSide(room string) bool {
	return slices.Contains([]string{"pkg/api", "pkg/controller", "cmd/oneboot-cluster"}, room)
}

// standardProblem holds what a room may use of the standard library.
func standardProblem(r room, to string) string {
	pure := r.path == "pkg/verdict" || r.path == "pkg/forecast"
	switch {
	case to == "os/exec" && r.path != "daemon":
		return "only daemon runs programs"
	case to == "C" || to == "unsafe" || to == "plugin":
		return "the program is pure Go"
	case pure && belowAny(to, "os", "net", "log", "time", "syscall", "math/rand", "io/ioutil"):
		return "a pure room has no I/O, no clock and no logger"
	case r.reader && (below(to, "os") || to == "io/ioutil" || to == "syscall"):
		return "host files are read through pkg/hostfs"
	case belowAny(r.path, "pkg/hostfs", "pkg/osimage", "pkg/bootimage") && below(to, "log"), r.reader && below(to, "log"):
		return "readers return values and never log"
	case below(to, "net/http") && !belowAny(r.path, "pkg/osimage", "pkg/bootimage", "pkg/metrics", "pkg/controller", "cmd/oneboot-cluster"):
		return "the network belongs to other rooms"
	}
	return ""
}

// foreignProblem holds which room uses which module.
func foreignProblem(r room, to string) string {
	switch {
	case r.path == "pkg/verdict" || r.path == "pkg/ostree/format":
		return "it imports nothing but the standard library and what is below it"
	case r.path == "pkg/hostfs" && !belowAny(to, "github.com/cyphar/filepath-securejoin", "golang.org/x/sys"):
		return "hostfs needs rooted paths and system calls, nothing else"
	case kubernetes(to) && !clusterSide(r.path):
		return "Kubernetes belongs to the cluster side"
	case belowAny(to, "modernc.org"):
		return "SQLite is for tests alone: it adds 4 MB to the program"
	case registryLibrary(to) && r.path != "pkg/osimage":
		return "only pkg/osimage speaks to registries"
	case r.reader && belowAny(to, "github.com/sirupsen/logrus", "go.uber.org/zap", "github.com/go-logr/logr"):
		return "readers return values and never log"
	}
	return ""
}

// kubernetes: the constants of the machine-config-operator import nothing and
// are not meant.
func kubernetes(pkg string) bool {
	if pkg == "github.com/openshift/machine-config-operator/pkg/daemon/constants" {
		return false
	}
	return belowAny(pkg, "k8s.io", "sigs.k8s.io", "github.com/openshift")
}

// registryLibrary: github.com/distribution/reference only takes names apart
// and is not meant.
func registryLibrary(pkg string) bool {
	return belowAny(pkg, "go.podman.io", "github.com/containers", "github.com/docker/distribution",
		"github.com/distribution/distribution", "github.com/google/go-containerregistry", "oras.land", "github.com/regclient")
}

// callProblem says why a package must not call a function of package os,
// syscall or golang.org/x/sys/unix; empty where it may.
func callProblem(from, pkg, function string) string {
	r := roomOf(from)
	if r.level == levelTest {
		return ""
	}
	switch {
	case pkg == "os" && function == "Exit" && r.level != levelCommand:
		return "only a command ends the program"
	case writes(pkg, function) && r.path != "daemon" && r.path != "pkg/osimage" && r.path != "pkg/bootimage":
		// pkg/osimage keeps private copies of the host's registry
		// configuration in a temporary folder of its own; pkg/bootimage writes
		// what was asked for into the caller's folder, not to the host.
		return "only daemon changes files"
	case r.level == levelCommand && reads(pkg, function):
		return "host files are read through pkg/hostfs"
	}
	return ""
}

func writes(pkg, function string) bool {
	switch pkg {
	case "os":
		return slices.Contains([]string{"Chmod", "Chown", "Chtimes", "CopyFS", "Create", "CreateTemp", "Lchown", "Link", "Mkdir",
			"MkdirAll", "MkdirTemp", "Remove", "RemoveAll", "Rename", "Symlink", "Truncate", "WriteFile"}, function)
	case "syscall", "golang.org/x/sys/unix":
		for _, start := range []string{"Chmod", "Chown", "Creat", "Fchmod", "Fchown", "Fsetxattr", "Ftruncate", "Lchown", "Link", "Lsetxattr",
			"Mkdir", "Mknod", "Mount", "Pwrite", "Rename", "Rmdir", "Setxattr", "Symlink", "Truncate", "Unlink", "Unmount", "Utime", "Write",
			"Exec", "ForkExec", "Reboot", "O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"} {
			if strings.HasPrefix(function, start) {
				return true
			}
		}
	}
	return false
}

func reads(pkg, function string) bool {
	return pkg == "os" && slices.Contains([]string{"Open", "OpenFile", "ReadFile", "ReadDir", "Stat", "Lstat", "Readlink", "DirFS", "OpenRoot"}, function)
}
