// Package manifests reads what an admin applies with the types of those who
// will read it: OpenShift's API and Ignition. It is a module of its own, since
// the program has none of them.
package manifests

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	ignition "github.com/coreos/ignition/v2/config/v3_2"
	"github.com/coreos/ignition/v2/config/v3_2/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"sigs.k8s.io/yaml"
)

const (
	dir      = "../../manifests/firstboot/"
	unitName = "oneboot-firstboot.service"
	envPath  = "/etc/oneboot/firstboot.env"
)

// read is a manifest with its placeholders filled in as docs/install.md says.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(dir + name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(
		"REGISTRY/oneboot@sha256:DIGEST", "registry.example.com:5000/tools/oneboot@sha256:"+strings.Repeat("5", 64),
		"https://MIRROR/oneboot", "https://mirror.example.com/oneboot",
		"SHA512", strings.Repeat("6", 128),
	).Replace(string(text))
}

func strict(t *testing.T, name string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(read(t, name)), into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// parse is Ignition's own reading, with nothing to complain about.
func parse(t *testing.T, name string, text []byte) types.Config {
	t.Helper()
	cfg, report, err := ignition.Parse(text)
	if err != nil || len(report.Entries) > 0 {
		t.Fatalf("%s: %v\n%s", name, err, report.String())
	}
	return cfg
}

func machineConfig(t *testing.T, name string) (mcfgv1.MachineConfig, types.Config) {
	t.Helper()
	var mc mcfgv1.MachineConfig
	strict(t, name, &mc)
	return mc, parse(t, name, mc.Spec.Config.Raw)
}

func unescape(t *testing.T, source string) string {
	t.Helper()
	data, ok := strings.CutPrefix(source, "data:,")
	if !ok {
		t.Fatalf("no data URL: %s", source)
	}
	text, err := url.PathUnescape(data)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestMachineConfigs(t *testing.T) {
	var first string
	for _, role := range []string{"worker", "master"} {
		name := "machineconfig-" + role + ".yaml"
		mc, cfg := machineConfig(t, name)
		if mc.APIVersion != "machineconfiguration.openshift.io/v1" || mc.Kind != "MachineConfig" || mc.Name != "99-"+role+"-oneboot" ||
			mc.Labels["machineconfiguration.openshift.io/role"] != role || len(mc.Labels) != 1 {
			t.Errorf("%s: got %s %s %s %v", name, mc.APIVersion, mc.Kind, mc.Name, mc.Labels)
		}
		// It changes nothing else: what is set here would be of no use on the
		// first boot, or make all nodes reboot.
		spec := mc.Spec
		spec.Config.Raw = nil
		if empty, _ := json.Marshal(mcfgv1.MachineConfigSpec{}); string(empty) != string(must(json.Marshal(spec))) {
			t.Errorf("%s: got spec %s", name, must(json.Marshal(spec)))
		}
		if len(cfg.Storage.Files) != 1 || cfg.Storage.Files[0].Path != envPath || *cfg.Storage.Files[0].Mode != 0o644 ||
			len(cfg.Systemd.Units) != 1 || cfg.Systemd.Units[0].Name != unitName || !*cfg.Systemd.Units[0].Enabled {
			t.Fatalf("%s: got %s", name, mc.Spec.Config.Raw)
		}
		env := unescape(t, *cfg.Storage.Files[0].Contents.Source)
		if ok, _ := regexp.MatchString(`^ONEBOOT_IMAGE=[^\s@]+@sha256:5{64}\nONEBOOT_MODE=assert\n$`, env); !ok {
			t.Errorf("%s: got environment %q", name, env)
		}
		// The limit of a rendered MachineConfig is 1.5 MiB for all of them.
		text := must(json.Marshal(mc))
		if len(text) > 8<<10 {
			t.Errorf("%s: %d bytes", name, len(text))
		}
		t.Logf("%s: %d bytes rendered", name, len(text))
		same := strings.ReplaceAll(string(text), role, "ROLE")
		if first == "" {
			first = same
		} else if same != first {
			t.Errorf("%s differs from the other by more than the role:\n%s\n%s", name, first, same)
		}
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// The policy covers all that the MachineConfigs change, and nothing more.
func TestNodeDisruptionPolicy(t *testing.T) {
	var c operatorv1.MachineConfiguration
	strict(t, "nodedisruptionpolicy.yaml", &c)
	if c.APIVersion != "operator.openshift.io/v1" || c.Kind != "MachineConfiguration" || c.Name != "cluster" || c.Namespace != "" {
		t.Errorf("got %s %s %s/%s", c.APIVersion, c.Kind, c.Namespace, c.Name)
	}
	none := func(a []operatorv1.NodeDisruptionPolicySpecAction) bool {
		return len(a) == 1 && a[0] == operatorv1.NodeDisruptionPolicySpecAction{Type: operatorv1.NoneSpecAction}
	}
	var files, units []string
	for _, f := range c.Spec.NodeDisruptionPolicy.Files {
		if files = append(files, f.Path); !none(f.Actions) {
			t.Errorf("got %+v", f)
		}
	}
	for _, u := range c.Spec.NodeDisruptionPolicy.Units {
		if units = append(units, string(u.Name)); !none(u.Actions) {
			t.Errorf("got %+v", u)
		}
	}
	if len(c.Spec.NodeDisruptionPolicy.SSHKey.Actions) > 0 {
		t.Errorf("it says what SSH keys do: %+v", c.Spec.NodeDisruptionPolicy.SSHKey)
	}
	var wantFiles, wantUnits []string
	_, cfg := machineConfig(t, "machineconfig-worker.yaml")
	for _, f := range cfg.Storage.Files {
		wantFiles = append(wantFiles, f.Path)
	}
	for _, u := range cfg.Systemd.Units {
		wantUnits = append(wantUnits, u.Name)
	}
	if !slices.Equal(files, wantFiles) || !slices.Equal(units, wantUnits) {
		t.Errorf("got policies for %v and %v; the MachineConfig has %v and %v", files, units, wantFiles, wantUnits)
	}
}

// A butane is what our Butane configs use of that format.
type butane struct {
	Variant  string `json:"variant"`
	Version  string `json:"version"`
	Metadata struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Storage struct {
		Files []struct {
			Path      string `json:"path"`
			Mode      int    `json:"mode"`
			Overwrite bool   `json:"overwrite"`
			Contents  struct {
				Inline       string `json:"inline"`
				Source       string `json:"source"`
				Verification struct {
					Hash string `json:"hash"`
				} `json:"verification"`
			} `json:"contents"`
		} `json:"files"`
	} `json:"storage"`
	Systemd struct {
		Units []struct {
			Name     string `json:"name"`
			Enabled  bool   `json:"enabled"`
			Contents string `json:"contents"`
		} `json:"units"`
	} `json:"systemd"`
}

// compare holds that an Ignition config says what the Butane config says.
func (b butane) compare(t *testing.T, cfg types.Config) {
	t.Helper()
	if len(b.Storage.Files) != len(cfg.Storage.Files) || len(b.Systemd.Units) != len(cfg.Systemd.Units) {
		t.Fatalf("got %d files and %d units, want %d and %d", len(cfg.Storage.Files), len(cfg.Systemd.Units), len(b.Storage.Files), len(b.Systemd.Units))
	}
	for i, f := range b.Storage.Files {
		got := cfg.Storage.Files[i]
		if got.Path != f.Path || *got.Mode != f.Mode || *got.Overwrite != f.Overwrite {
			t.Errorf("got %s %o %v, want %+v", got.Path, *got.Mode, *got.Overwrite, f)
		}
		if f.Contents.Source != "" {
			if *got.Contents.Source != f.Contents.Source || *got.Contents.Verification.Hash != f.Contents.Verification.Hash {
				t.Errorf("%s: got %+v", f.Path, got.Contents)
			}
		} else if text := unescape(t, *got.Contents.Source); text != f.Contents.Inline {
			t.Errorf("%s: got %q, want %q", f.Path, text, f.Contents.Inline)
		}
	}
	for i, u := range b.Systemd.Units {
		got := cfg.Systemd.Units[i]
		if got.Name != u.Name || *got.Enabled != u.Enabled || *got.Contents != u.Contents {
			t.Errorf("got %s %v\n%s\nwant\n%s", got.Name, *got.Enabled, *got.Contents, u.Contents)
		}
	}
}

// What Butane makes of the first is the MachineConfig.
func TestButaneOKD(t *testing.T) {
	var b butane
	strict(t, "butane/okd-worker.bu", &b)
	mc, cfg := machineConfig(t, "machineconfig-worker.yaml")
	if b.Variant != "openshift" || b.Version != "4.12.0" || b.Metadata.Name != mc.Name || len(b.Metadata.Labels) != 1 ||
		b.Metadata.Labels["machineconfiguration.openshift.io/role"] != "worker" {
		t.Errorf("got %+v", b)
	}
	b.compare(t, cfg)
}

// And of the second the Ignition config beside it, with the shipped unit.
func TestButaneFCOS(t *testing.T) {
	var b butane
	strict(t, "butane/fcos.bu", &b)
	// Butane's fcos 1.3.0 is Ignition 3.2.0, and so are its files' modes and
	// data URLs, uncompressed where short.
	if b.Variant != "fcos" || b.Version != "1.3.0" || len(b.Metadata.Name) > 0 {
		t.Errorf("got %+v", b)
	}
	b.compare(t, parse(t, "fcos.ign", []byte(read(t, "butane/fcos.ign"))))

	shipped, err := os.ReadFile("../../daemon/units/" + unitName)
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(shipped), "\n[Unit]\n")
	if !ok {
		t.Fatal("the unit has no [Unit] section")
	}
	want := strings.NewReplacer("=-/usr/bin/oneboot ", "=-/usr/local/bin/oneboot ", "=-+/usr/bin/oneboot ", "=-+/usr/local/bin/oneboot ").Replace("[Unit]\n" + text)
	if got := b.Systemd.Units[0].Contents; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Every file in the folder is one that is tested here.
func TestNothingElse(t *testing.T) {
	var got []string
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			got = append(got, strings.TrimPrefix(path, filepath.Clean(dir)+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"butane/fcos.bu", "butane/fcos.ign", "butane/okd-worker.bu", "machineconfig-master.yaml", "machineconfig-worker.yaml", "nodedisruptionpolicy.yaml"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
