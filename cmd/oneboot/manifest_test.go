package main

import (
	"os"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The pod's arguments are ones that the program takes.
func TestAnalyzePod(t *testing.T) {
	text, err := os.ReadFile("../../manifests/analyze/pod.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var pod struct {
		Kind string `yaml:"kind"`
		Spec struct {
			Containers []struct {
				Args         []string `yaml:"args"`
				VolumeMounts []struct {
					MountPath string `yaml:"mountPath"`
					ReadOnly  bool   `yaml:"readOnly"`
				} `yaml:"volumeMounts"`
			} `yaml:"containers"`
		} `yaml:"spec"`
	}
	if err := yaml.Unmarshal(text, &pod); err != nil {
		t.Fatal(err)
	}
	if pod.Kind != "Pod" || len(pod.Spec.Containers) != 1 {
		t.Fatalf("got %+v", pod)
	}
	c := pod.Spec.Containers[0]
	cmd, rest, err := newRoot("oneboot").Find(c.Args)
	if err != nil || cmd.Name() != "analyze" {
		t.Fatalf("%v: %v", c.Args, err)
	}
	if err := cmd.ParseFlags(rest); err != nil {
		t.Fatal(err)
	}
	root := cmd.Flag("root").Value.String()
	for _, m := range c.VolumeMounts {
		if m.MountPath == root && m.ReadOnly {
			return
		}
	}
	t.Errorf("--root %s is not mounted read-only: %+v", root, c.VolumeMounts)
}
