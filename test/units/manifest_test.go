package units

import (
	"os"
	"testing"

	"go.yaml.in/yaml/v3"
)

const (
	manifests = "../../manifests/firstboot/"
	testImage = "registry.example.com/oneboot@sha256:79e11009606d229b3f3bbbb2dc36f7639c03146f4928bb6f7c205a9075c94c49"
)

// An ignition is what our Ignition configs use of that format.
type ignition struct {
	Ignition struct {
		Version string `yaml:"version"`
	} `yaml:"ignition"`
	Storage struct {
		Files []struct {
			Path      string `yaml:"path"`
			Mode      int    `yaml:"mode"`
			Overwrite bool   `yaml:"overwrite"`
			Contents  struct {
				Compression  string `yaml:"compression"`
				Source       string `yaml:"source"`
				Verification struct {
					Hash string `yaml:"hash"`
				} `yaml:"verification"`
			} `yaml:"contents"`
		} `yaml:"files"`
	} `yaml:"storage"`
	Systemd struct {
		Units []ignitionUnit `yaml:"units"`
	} `yaml:"systemd"`
}

type ignitionUnit struct {
	Name     string `yaml:"name"`
	Enabled  bool   `yaml:"enabled"`
	Contents string `yaml:"contents"`
}

type machineConfig struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   struct {
		Name   string            `yaml:"name"`
		Labels map[string]string `yaml:"labels"`
	} `yaml:"metadata"`
	Spec struct {
		Config ignition `yaml:"config"`
	} `yaml:"spec"`
}

// parse reads a manifest strictly: a key that the type lacks is a mistake.
func parse(t *testing.T, name string, into any) {
	t.Helper()
	f, err := os.Open(manifests + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// podmanUnit is the unit that the MachineConfigs carry.
func podmanUnit(t *testing.T) string {
	t.Helper()
	var mc machineConfig
	parse(t, "machineconfig-worker.yaml", &mc)
	if len(mc.Spec.Config.Systemd.Units) != 1 {
		t.Fatalf("%d units", len(mc.Spec.Config.Systemd.Units))
	}
	return mc.Spec.Config.Systemd.Units[0].Contents
}
