package fleet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/oneboot/oneboot/pkg/forecast"
)

const (
	osDigest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	version  = "416.94.202410160352-0"
	pool     = `
---
kind: MachineConfigPool
metadata: {name: worker}
spec: {configuration: {name: rendered-worker-1}}
status: {configuration: {name: rendered-worker-1}, updatedMachineCount: 3}
`
	config = `
---
kind: MachineConfig
metadata: {name: rendered-worker-1, annotations: {machineconfiguration.openshift.io/release-image-version: "4.16.3"}}
spec:
  osImageURL: quay.io/os@` + osDigest + "\n"
	machines = `
---
kind: MachineSet
metadata: {name: w, labels: {machine.openshift.io/cluster-api-cluster: a}}
spec: {template: {spec: {providerSpec: {value: {kind: AWSMachineProviderConfig, ami: {id: ami-1}, userDataSecret: {name: worker-user-data}}}}}}
`
	imageSet = `
---
kind: ClusterImageSet
metadata: {name: v416}
spec: {releaseImage: "quay.io/openshift-release-dev/ocp-release:4.16.3-x86_64"}
---
kind: ClusterImageSet
metadata: {name: v414}
spec: {releaseImage: "quay.io/openshift-release-dev/ocp-release:4.14.3-x86_64"}
`
	infraEnv = `
---
kind: InfraEnv
metadata: {name: e, namespace: site}
spec: {clusterRef: {name: site, namespace: site}}
`
	install = `
---
kind: AgentClusterInstall
metadata: {name: site, namespace: site}
spec: {clusterDeploymentRef: {name: site}, imageSetRef: {name: v416}, manifestsConfigMapRefs: [{name: extra}]}
`
	extra = `
---
kind: ConfigMap
metadata: {name: extra, namespace: site}
data:
  a.yaml: |
    kind: %s
    spec: %s
`
	agentService = `
---
kind: AgentServiceConfig
metadata: {name: agent, annotations: {unsupported.agent-install.openshift.io/assisted-service-configmap: env}}
`
	nodePool = `
---
kind: NodePool
metadata: {name: p, namespace: site}
spec: {arch: %s, platform: {type: Agent}, release: {image: "quay.io/openshift-release-dev/ocp-release:4.18.2-multi"}%s}
`
)

// environment is a ConfigMap that sets up assisted-service.
func environment(skip string) string {
	return "\n---\nkind: ConfigMap\nmetadata: {name: env, namespace: multicluster-engine}\ndata: {ENABLE_SKIP_MCO_REBOOT: '" + skip + "'}\n"
}

// A skip is forecast where all that matters was read and says so, else not.
func TestForecasts(t *testing.T) {
	custom := func(url string) string {
		return "\n---\nkind: BareMetalHost\nmetadata: {name: h}\nspec: {customDeploy: {method: install_coreos}, image: {url: '" + url + "'}, userData: {name: infra-user-data-managed}}\n"
	}
	table := Table{"ami-1": {ManifestDigest: osDigest}, version: {ManifestDigest: osDigest}}
	tests := []struct {
		name, text string
		want       forecast.Outcome
		problem    string
	}{
		{name: "the disk image has the pool's image", text: pool + config + machines, want: forecast.Skip},
		{name: "an update that no node has yet", text: strings.ReplaceAll(pool, "status: {configuration: {name: rendered-worker-1}, updatedMachineCount: 3}", "status: {configuration: {name: rendered-worker-0}, updatedMachineCount: 0}") +
			config + strings.NewReplacer("worker-1", "worker-0", osDigest, "sha256:bbbb").Replace(config) + machines, want: forecast.Unknown},
		{name: "an update that a node has", text: strings.ReplaceAll(pool, "status: {configuration: {name: rendered-worker-1}", "status: {configuration: {name: rendered-worker-0}") + config + machines, want: forecast.Skip},
		{name: "a pool that is labelled as layered", text: strings.ReplaceAll(pool, "{name: worker}", "{name: worker, labels: {machineconfiguration.openshift.io/layering-enabled: ''}}") + config + machines, want: forecast.PivotLayers},
		{name: "extensions that are no list", text: pool + config + "  extensions: usbguard\n" + machines, want: forecast.Unknown, problem: "spec.extensions is not a list of strings"},
		{name: "an extension that is no word", text: pool + config + "  extensions: [64]\n" + machines, want: forecast.Unknown, problem: "spec.extensions is not a list of strings"},
		{name: "a kernel type that is no word", text: pool + config + "  kernelType: [realtime]\n" + machines, want: forecast.Unknown, problem: "spec.kernelType is not a string"},
		{name: "arguments that are no list", text: pool + config + "  kernelArguments: nosmt\n" + machines, want: forecast.Unknown, problem: "spec.kernelArguments"},
		{name: "the pools of two clusters", text: pool + strings.ReplaceAll(pool, "worker-1", "worker-2") + config + machines, want: forecast.Unknown, problem: "one cluster at a time"},
		{name: "one pool twice", text: pool + pool + config + config + machines, want: forecast.Skip},
		{name: "two MachineConfigs of one name", text: pool + config + "  extensions: [usbguard]\n" + config + machines, want: forecast.Unknown, problem: "says something else"},
		{name: "a pool without a name", text: strings.ReplaceAll(pool, "{name: worker}", "{}") + config + strings.ReplaceAll(machines, "worker-user-data", ""), want: forecast.Unknown},
		{name: "a pool without a configuration", text: "---\nkind: MachineConfigPool\nmetadata: {name: worker}" + strings.ReplaceAll(config, "name: rendered-worker-1, ", "") + machines, want: forecast.Unknown},
		{name: "machines of two clusters", text: pool + config + machines + strings.NewReplacer("name: w,", "name: x,", "cluster: a", "cluster: b", "ami-1", "ami-2").Replace(machines), want: forecast.Unknown, problem: "one cluster at a time"},
		{name: "a host of another pool", text: pool + config + custom("https://example.com/ami-1"), want: forecast.Unknown},
		{name: "a file that is named like a version", text: pool + config + strings.ReplaceAll(custom("https://example.com/rhcos-"+version+"-mine.raw"), "infra-user", "worker-user"), want: forecast.Unknown},
		{name: "a folder that is named like a version", text: pool + config + strings.ReplaceAll(custom("https://example.com/"+version+"/mine.raw"), "infra-user", "worker-user"), want: forecast.Unknown},

		{name: "assisted", text: imageSet + infraEnv + strings.ReplaceAll(install, ", manifestsConfigMapRefs: [{name: extra}]", ""), want: forecast.Skip},
		{name: "manifests that are not here", text: imageSet + infraEnv + install, want: forecast.Unknown},
		{name: "manifests that cost nothing", text: imageSet + infraEnv + install + fmt.Sprintf(extra, "KubeletConfig", "{}"), want: forecast.Skip},
		{name: "manifests with a kernel type", text: imageSet + infraEnv + install + fmt.Sprintf(extra, "MachineConfig", "{kernelType: realtime}"), want: forecast.PivotLayers},
		{name: "manifests with an extension", text: imageSet + infraEnv + install + fmt.Sprintf(extra, "MachineConfig", "{extensions: [usbguard]}"), want: forecast.PivotLayers},
		{name: "manifests with a profile", text: imageSet + infraEnv + install + fmt.Sprintf(extra, "PerformanceProfile", "{realTimeKernel: {enabled: true}}"), want: forecast.PivotLayers},
		{name: "manifests that are none", text: imageSet + infraEnv + install + fmt.Sprintf(extra, "MachineConfig", "{extensions: usbguard}"), want: forecast.Unknown},
		{name: "two installs of one name", text: imageSet + infraEnv + strings.ReplaceAll(install, ", manifestsConfigMapRefs: [{name: extra}]", "") +
			strings.NewReplacer(", manifestsConfigMapRefs: [{name: extra}]", "", "v416", "v414", "namespace: site", "namespace: other").Replace(install), want: forecast.Unknown},
		{name: "two image sets of one name", text: imageSet + strings.ReplaceAll(imageSet, "4.16.3", "4.14.1") + infraEnv + strings.ReplaceAll(install, ", manifestsConfigMapRefs: [{name: extra}]", ""), want: forecast.Unknown, problem: "says something else"},
		{name: "a site's manifests", text: imageSet + "\n---\nkind: ClusterInstance\nmetadata: {name: s, namespace: site}\nspec: {clusterName: s, clusterImageSetNameRef: v416, extraManifestsRefs: [{name: extra}]}\n", want: forecast.Unknown},
		{name: "a site's folder", text: imageSet + "\n---\nkind: SiteConfig\nmetadata: {name: s}\nspec: {clusterImageSetNameRef: v416, clusters: [{clusterName: s, extraManifestPath: x/}]}\n", want: forecast.Unknown},

		{name: "an installer that is told not to", text: imageSet + infraEnv + strings.ReplaceAll(install, ", manifestsConfigMapRefs: [{name: extra}]", "") + agentService + environment("false"), want: forecast.Unknown},
		{name: "an installer that is told to", text: imageSet + infraEnv + strings.ReplaceAll(install, ", manifestsConfigMapRefs: [{name: extra}]", "") + agentService + environment("true"), want: forecast.Skip},
		{name: "an installer that is told what was not read", text: imageSet + infraEnv + strings.ReplaceAll(install, ", manifestsConfigMapRefs: [{name: extra}]", "") + agentService, want: forecast.Unknown},
		{name: "agents of an installer that is told not to", text: fmt.Sprintf(nodePool, "amd64", "") + agentService + environment("0"), want: forecast.Unknown},
		{name: "a worker of this cluster, and an installer that was not read", text: pool + config + agentService + "\n---\nkind: ClusterVersion\nmetadata: {name: version}\nstatus: {desired: {version: 4.16.3}}\n---\nkind: InfraEnv\nmetadata: {name: day2}\n", want: forecast.Unknown},
		{name: "a mainframe in a cluster", text: imageSet + "\n---\nkind: ClusterInstance\nmetadata: {name: s, namespace: site}\nspec: {clusterName: s, clusterImageSetNameRef: v416, nodes: [{hostName: a}, {hostName: b, cpuArchitecture: s390x}]}\n", want: forecast.Unknown},

		{name: "a NodePool of agents", text: fmt.Sprintf(nodePool, "amd64", ""), want: forecast.Skip},
		{name: "a NodePool of mainframes", text: fmt.Sprintf(nodePool, "s390x", ""), want: forecast.Unknown},
		{name: "a NodePool with what was not read", text: fmt.Sprintf(nodePool, "amd64", ", config: [{name: extra}]"), want: forecast.Unknown},
		{name: "a NodePool with tuning that was not read", text: fmt.Sprintf(nodePool, "amd64", ", tuningConfig: [{name: extra}]"), want: forecast.Unknown},
		{name: "a NodePool with what costs nothing", text: fmt.Sprintf(nodePool, "amd64", ", config: [{name: extra}]") + fmt.Sprintf(extra, "KubeletConfig", "{}"), want: forecast.Skip},
		{name: "a NodePool with realtime", text: fmt.Sprintf(nodePool, "amd64", ", config: [{name: extra}]") + fmt.Sprintf(extra, "MachineConfig", "{kernelType: realtime}"), want: forecast.PivotLayers},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := Fleet{Bootimages: table}
			f.Add("f", []byte(tt.text))
			sources, targets := f.Sources()
			if len(sources) == 0 {
				t.Fatalf("no source; problems: %v", f.Problems())
			}
			got := forecast.Of(sources[0], targets[sources[0].Pool])
			if got.Outcome != tt.want {
				t.Errorf("%s because of %s (%s), want %s", got.Outcome, got.Reason, got.Why, tt.want)
			}
			problems := fmt.Sprint(f.Problems())
			if tt.problem == "" && len(f.Problems()) > 0 || !strings.Contains(problems, tt.problem) {
				t.Errorf("problems: %s, want %q", problems, tt.problem)
			}
		})
	}
}

// Twice the objects cost twice the time.
func TestManySources(t *testing.T) {
	var f Fleet
	const n = 20_000
	var images []any
	for i := range n {
		name := fmt.Sprint("c", i)
		images = append(images, map[string]any{"openshiftVersion": name})
		f.AddObject("f", map[string]any{"kind": "InfraEnv", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"clusterRef": map[string]any{"name": name}, "osImageVersion": name}})
		f.AddObject("f", map[string]any{"kind": "AgentClusterInstall", "metadata": map[string]any{"name": name}})
	}
	f.AddObject("f", map[string]any{"kind": "AgentServiceConfig", "spec": map[string]any{"osImages": images}})
	began := time.Now()
	if sources, _ := f.Sources(); len(sources) != n {
		t.Errorf("%d sources", len(sources))
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("%s for %d sources", took, n)
	}
}
