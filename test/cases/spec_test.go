package cases

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"go.yaml.in/yaml/v3"
)

// specFile is the file of a case that says what is asked and answered; all
// others are inputs, byte for byte as they were reported.
const specFile = "case.yaml"

// A spec is a case.yaml: see testdata/README.md.
type spec struct {
	Names   map[string]string     `yaml:"names"`
	Commits map[string]commitSpec `yaml:"commits"`
	Images  map[string]imageSpec  `yaml:"images"`
	Runs    []runSpec             `yaml:"runs"`
	Reads   []readSpec            `yaml:"reads"`
}

// A commitSpec is an OS build that differs from the ones all cases share.
type commitSpec struct {
	// Tree is the name of the build that this one varies; base where empty.
	Tree string `yaml:"tree"`
	// Kernel is the release of its kernel.
	Kernel string `yaml:"kernel"`
	// Version is its version; Bare leaves out every metadata key but
	// ostree.bootable.
	Version string `yaml:"version"`
	Bare    bool   `yaml:"bare"`
	// Without lists paths that it lacks.
	Without []string `yaml:"without"`
	// Packages are the packages of its package list, name to
	// [epoch:]version-release.
	Packages map[string]string `yaml:"packages"`
}

// An imageSpec is an OS image that is really built.
type imageSpec struct {
	// Commit is encapsulated as ostree-ext does it; Legacy lies in /srv/repo
	// of a machine-os-content image; Derived is the image to build FROM, with
	// Layers more; Plain is an image that holds no OS.
	Commit  string   `yaml:"commit"`
	Legacy  []string `yaml:"legacy"`
	Derived string   `yaml:"derived"`
	Layers  int      `yaml:"layers"`
	Plain   bool     `yaml:"plain"`
	// Extensions makes it an extensions image with these packages, name to
	// [epoch:]version-release.
	Extensions map[string]string `yaml:"extensions"`
	// Labels is the file with the labels, Label single ones on top of them,
	// WithoutLabels those to leave out.
	Labels        string            `yaml:"labels"`
	Label         map[string]string `yaml:"label"`
	WithoutLabels []string          `yaml:"without-labels"`
	// Format is oci or v2s2, Compression gzip, zstd or mixed.
	Format      string `yaml:"format"`
	Compression string `yaml:"compression"`
	// Refs are the refs in a legacy image's repository.
	Refs map[string]string `yaml:"refs"`
}

// A runSpec asks one question.
type runSpec struct {
	Name string `yaml:"name"`
	// Why is for the reader, where the case's own text does not say it.
	Why string `yaml:"why"`
	// Node is what is on the machine; absent where only a saved status is
	// looked at.
	Node *nodeSpec `yaml:"node"`
	// Status is a saved rpm-ostree status.
	Status string `yaml:"status"`
	// MachineConfig is the file with the encapsulated MachineConfig.
	MachineConfig string `yaml:"machineconfig"`
	// Wanted, where there is no such file, is the osImageURL; Set overrides
	// keys of the MachineConfig's spec.
	Wanted string `yaml:"wanted"`
	// Release is the OpenShift release that the MachineConfig was rendered by.
	Release string         `yaml:"release"`
	Set     map[string]any `yaml:"set"`
	// Network says what answers, by host[:port] or host/repository.
	Network map[string]siteSpec `yaml:"network"`
	// Full gathers every fact.
	Full bool `yaml:"full"`
	// Unprivileged takes away root's right to read what others may not.
	Unprivileged bool `yaml:"unprivileged"`
	// ProxyUser is what the proxy asks for; nothing where empty.
	ProxyUser string `yaml:"proxy-user"`
	// Timeout bounds the analysis; 20 seconds where empty.
	Timeout string     `yaml:"timeout"`
	Expect  expectSpec `yaml:"expect"`
}

// A nodeSpec is a machine.
type nodeSpec struct {
	// Deployments are in the order in which rpm-ostree lists them: the first
	// one boots next. Where there are several one says that it is booted.
	Deployments []deploymentSpec `yaml:"deployments"`
	Kargs       []string         `yaml:"kargs"`
	// Options replaces the options of the boot entry but ostree=, Cmdline
	// /proc/cmdline but ostree=: names of files.
	Options string `yaml:"options"`
	Cmdline string `yaml:"cmdline"`
	FIPS    string `yaml:"fips"`
	// Files are put below the root: path to the file of the case, to
	// "-" for none, to "-> target" for a link, to "= text" for the text.
	Files map[string]string `yaml:"files"`
	// Closed are files that belong to another user and only it may read.
	Closed []string `yaml:"closed"`
	// Refs are further refs in the repository: name to commit.
	Refs map[string]string `yaml:"refs"`
}

// A deploymentSpec is a deployment.
type deploymentSpec struct {
	Commit    string `yaml:"commit"`
	Image     string `yaml:"image"`
	Stateroot string `yaml:"stateroot"`
	Booted    bool   `yaml:"booted"`
	// Origin is the origin file: a file of the case, or a text with newlines.
	Origin string `yaml:"origin"`
	// Layered are packages that rpm-ostree has layered on the node.
	Layered *layeredSpec `yaml:"layered"`
	// Digest is the manifest digest that the commit stores, where it is not
	// the image's own.
	Digest string `yaml:"digest"`
}

// A layeredSpec is what rpm-ostree has done to a commit on the node.
type layeredSpec struct {
	// Requested are the packages asked for, Added those that came, name to
	// [epoch:]version-release, Removed the base packages that went.
	Requested []string          `yaml:"requested"`
	Added     map[string]string `yaml:"added"`
	Removed   []string          `yaml:"removed"`
	// Kernel is the release of the layered kernel.
	Kernel string `yaml:"kernel"`
}

// A siteSpec is what answers at a host or in a repository.
type siteSpec struct {
	Images    []string          `yaml:"images"`
	Tags      map[string]string `yaml:"tags"`
	Documents []string          `yaml:"documents"`
	// Status answers all with this status, and with Body.
	Status int    `yaml:"status"`
	Body   string `yaml:"body"`
	// User is the "user:password" that must be given, quoted as in Go.
	User string `yaml:"user"`
	// Hangs never answers.
	Hangs bool `yaml:"hangs"`
}

// An expectSpec is the whole answer. What is not written must not be there.
type expectSpec struct {
	Action     string `yaml:"action"`
	Conclusive bool   `yaml:"conclusive"`
	// Hypothetical is true for saved statuses.
	Hypothetical bool        `yaml:"hypothetical"`
	Reason       string      `yaml:"reason"`
	Proof        string      `yaml:"proof"`
	Errors       []errorSpec `yaml:"errors"`
	// Warnings are parts of the warnings, one each.
	Warnings []string `yaml:"warnings"`
	// Checks are outcomes of checks, with part of the detail behind a colon:
	// only those of interest.
	Checks map[string]string `yaml:"checks"`
	MCO    *mcoSpec          `yaml:"mco"`
	// Contacts are the hosts asked, in order, each once in a row.
	Contacts []string `yaml:"contacts"`
	// Absent are texts that are nowhere in the document.
	Absent []string `yaml:"absent"`
}

type errorSpec struct {
	Code   string   `yaml:"code"`
	Source string   `yaml:"source"`
	Says   []string `yaml:"says"`
}

type mcoSpec struct {
	WouldSkip bool     `yaml:"wouldSkip"`
	Why       []string `yaml:"why"`
}

// A testCase is one file of testdata.
type testCase struct {
	spec
	name  string
	files map[string]string
}

// reported is how many cases there were at first.
const reported = 48

func readCases(t *testing.T) []*testCase {
	t.Helper()
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var all []*testCase
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		c, err := parseCase(strings.TrimSuffix(filepath.Base(name), ".txtar"), text)
		if err != nil {
			t.Fatalf("reading %s: %v", name, err)
		}
		all = append(all, c)
	}
	if len(all) < reported {
		t.Fatalf("%d cases in testdata, want %d at least", len(all), reported)
	}
	return all
}

func parseCase(name string, text []byte) (*testCase, error) {
	c := &testCase{name: name, files: map[string]string{}}
	for _, f := range txtar.Parse(text).Files {
		if _, twice := c.files[f.Name]; twice {
			return nil, fmt.Errorf("file %s is there twice", f.Name)
		}
		c.files[f.Name] = string(f.Data)
	}
	d := yaml.NewDecoder(bytes.NewReader([]byte(c.files[specFile])))
	d.KnownFields(true)
	if err := d.Decode(&c.spec); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", specFile, err)
	}
	if len(c.Runs) == 0 {
		return nil, fmt.Errorf("%s: no runs", specFile)
	}
	names := map[string]string{}
	for k, v := range c.Names {
		names[expandName(k)] = v
	}
	c.Names = names
	return c, nil
}

// expandName reads "b*64" at the end of a name as 64 times b.
func expandName(name string) string {
	short, ok := strings.CutSuffix(name, "*64")
	if !ok || short == "" {
		return name
	}
	last := len(short) - 1
	return short[:last] + strings.Repeat(short[last:], 64)
}

// inputs are the names of the case's files but the spec.
func (c *testCase) inputs() []string {
	var names []string
	for name := range c.files {
		if name != specFile {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
