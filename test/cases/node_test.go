package cases

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

// Where the harness puts what the node needs to reach its network.
const (
	proxyPath = "etc/mco/proxy.env"
	caPath    = "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"
	// foreignUser owns files that are closed to the program.
	foreignUser = 65534
)

// elsewhere is a root that is not the node's: it has the MachineConfig and the
// way to the network, and a saved status must speak for itself.
func (w *world) elsewhere(r runSpec) string {
	w.t.Helper()
	root := &sysroot.Root{Dir: filepath.Join(sysroot.TempDir(w.t), "elsewhere")}
	w.write(root, proxyPath, "HTTPS_PROXY=http://"+w.lab.net.proxyHost+"\n")
	w.write(root, caPath, w.lab.net.authority.pem)
	w.write(root, sysroot.PolicyPath, `{"default":[{"type":"insecureAcceptAnything"}]}`+"\n")
	w.write(root, sysroot.MachineConfigPath, w.machineConfig(r))
	return root.Dir
}

// A machine is a sysroot that runs with equal deployments share.
type machine struct {
	*sysroot.Root
	booted sysroot.Deployment
	placed []string
}

// machine deploys what a run asks for, or takes what an earlier run has left.
func (w *world) machine(r runSpec) *machine {
	w.t.Helper()
	key := w.deployed(r.Node)
	own := len(r.Node.Refs) > 0 // below /sysroot, which others would see
	for name := range r.Node.Files {
		own = own || strings.HasPrefix(name, "sysroot/")
	}
	if m, ok := w.lab.machines[key]; ok && !own {
		for _, name := range m.placed {
			if err := os.RemoveAll(m.Path(name)); err != nil {
				w.t.Fatal(err)
			}
		}
		return m
	}
	w.lab.made++
	dir := filepath.Join(w.lab.dir, fmt.Sprintf("root-%d", w.lab.made))
	m := &machine{Root: must[*sysroot.Root](w.t)(sysroot.NewRoot(dir))}
	m.booted = w.deployAll(m.Sysroot, r.Node)
	if r.Node.Options != "" {
		if err := m.booted.SetBootOptions(kept(w.text(r.Node.Options))...); err != nil {
			w.t.Fatal(err)
		}
	}
	if !own {
		w.lab.machines[key] = m
	}
	return m
}

// deployed is all that makes a machine, with real digests in it.
func (w *world) deployed(n *nodeSpec) string {
	w.t.Helper()
	var s strings.Builder
	for _, d := range n.Deployments {
		content := ""
		if d.Image != "" {
			content = w.image(d.Image).Digest
		} else {
			content = w.commit(d.Commit)
		}
		layered := ""
		if d.Layered != nil {
			layered = fmt.Sprintf("%+v", *d.Layered)
		}
		fmt.Fprintf(&s, "%s %q %t %q %q %s\n", content, d.Stateroot, d.Booted, w.origin(d), w.substitute(d.Digest), layered)
	}
	if n.Options != "" {
		s.WriteString(w.text(n.Options))
	}
	return fmt.Sprintf("%s %q", s.String(), n.Kargs)
}

// node makes the machine of a run and returns its root.
func (w *world) node(r runSpec) *sysroot.Root {
	w.t.Helper()
	m := w.machine(r)
	root, booted := m.Root, m.booted
	m.placed = nil
	fips := r.Node.FIPS != "" && strings.TrimSpace(w.text(r.Node.FIPS)) == "1"
	if err := root.Boot(booted, sysroot.BootOptions{FIPS: fips}); err != nil {
		w.t.Fatal(err)
	}
	if r.Node.Cmdline != "" {
		w.writeCommandLine(root, booted, r.Node.Cmdline)
	}
	w.write(root, proxyPath, "HTTPS_PROXY=http://"+w.lab.net.proxyHost+"\n")
	w.write(root, caPath, w.lab.net.authority.pem)
	w.write(root, sysroot.MachineConfigPath, w.machineConfig(r))
	for name, what := range r.Node.Files {
		m.placed = append(m.placed, w.substitute(name))
		w.place(root, name, what)
	}
	for _, name := range r.Node.Closed {
		path := root.Path(name)
		if err := os.Chown(path, foreignUser, foreignUser); err != nil {
			w.t.Fatal(err)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	for ref, commit := range r.Node.Refs {
		w.setRef(root.Sysroot, ref, commit)
	}
	return root
}

// deployAll deploys the last one first, so that the first one boots next.
func (w *world) deployAll(s *sysroot.Sysroot, n *nodeSpec) sysroot.Deployment {
	w.t.Helper()
	var booted sysroot.Deployment
	found := false
	made := map[string]bool{sysroot.Stateroot: true}
	for i := len(n.Deployments) - 1; i >= 0; i-- {
		d := n.Deployments[i]
		if d.Stateroot != "" && !made[d.Stateroot] {
			if err := s.AddStateroot(d.Stateroot); err != nil {
				w.t.Fatal(err)
			}
			made[d.Stateroot] = true
		}
		deployed := w.deploy(s, n, d)
		if d.Booted || len(n.Deployments) == 1 {
			booted, found = deployed, true
		}
	}
	if !found {
		w.t.Fatal("no deployment is booted")
	}
	return booted
}

func (w *world) deploy(s *sysroot.Sysroot, n *nodeSpec, d deploymentSpec) sysroot.Deployment {
	w.t.Helper()
	commit := w.bring(s, d)
	if d.Layered != nil {
		commit = must[string](w.t)(s.CommitLayer(w.layer(commit, d)))
	}
	kargs := append([]string{"root=UUID=00000000-0000-4000-8000-000000000001", "rw", "$ignition_firstboot"}, n.Kargs...)
	return must[sysroot.Deployment](w.t)(s.Deploy(commit, sysroot.DeployOptions{
		Stateroot: d.Stateroot, KernelArguments: kargs, Origin: w.origin(d)}))
}

// origin is the text of a deployment's origin file; empty where ostree's own
// will do.
func (w *world) origin(d deploymentSpec) string {
	w.t.Helper()
	switch {
	case strings.Contains(d.Origin, "\n"):
		return w.substitute(d.Origin)
	case d.Origin != "":
		return w.text(d.Origin)
	case d.Image != "":
		return sysroot.ContainerOrigin("ostree-image-signed:oci-archive:/rhcos.ociarchive")
	}
	return ""
}

// layer says how rpm-ostree changed a commit.
func (w *world) layer(base string, d deploymentSpec) sysroot.ClientLayer {
	var c commitSpec
	if d.Image == "" {
		c = w.Commits[d.Commit]
	}
	kernel := sysroot.DefaultKernel
	if c.Kernel != "" {
		kernel = c.Kernel
	}
	l := sysroot.ClientLayer{Base: base, BasePackages: packagesOf(c, kernel),
		Requested: d.Layered.Requested, Removed: d.Layered.Removed, Kernel: d.Layered.Kernel}
	for _, name := range slices.Sorted(maps.Keys(d.Layered.Added)) {
		p := sysroot.Package{Name: name, Arch: "x86_64"}
		p.Epoch, p.Version, p.Release = splitEVR(d.Layered.Added[name])
		l.Added = append(l.Added, p)
	}
	return l
}

// bring gets the commit of a deployment into the node's repository.
func (w *world) bring(s *sysroot.Sysroot, d deploymentSpec) string {
	w.t.Helper()
	if d.Image != "" {
		opts := nativeimage.ImportOptions{}
		if d.Digest != "" {
			opts.ManifestDigest = w.substitute(d.Digest)
		}
		return must[string](w.t)(nativeimage.Import(s.Repo(), w.image(d.Image), opts))
	}
	c := w.commit(d.Commit)
	if _, err := sysroot.Ostree("pull-local", "--repo="+s.Repo(), "--disable-fsync", w.lab.build.Repo(), c); err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) setRef(s *sysroot.Sysroot, ref, commit string) {
	w.t.Helper()
	c := w.commit(commit)
	for _, args := range [][]string{
		{"pull-local", "--repo=" + s.Repo(), "--disable-fsync", w.lab.build.Repo(), c},
		{"refs", "--repo=" + s.Repo(), "--create=" + ref, c},
	} {
		if _, err := sysroot.Ostree(args...); err != nil {
			w.t.Fatal(err)
		}
	}
}

// kept are the arguments of a reported line without those that belong to the
// reported machine's boot: the harness has its own.
func kept(line string) []string {
	var words []string
	for _, word := range strings.Fields(line) {
		if !strings.HasPrefix(word, "ostree=") && !strings.HasPrefix(word, "BOOT_IMAGE=") {
			words = append(words, word)
		}
	}
	return words
}

func (w *world) writeCommandLine(root *sysroot.Root, booted sysroot.Deployment, file string) {
	w.t.Helper()
	_, entry, err := booted.BootEntry()
	if err != nil {
		w.t.Fatal(err)
	}
	words := append([]string{"BOOT_IMAGE=(hd0,gpt3)" + entry["linux"]}, kept(w.text(file))...)
	for word := range strings.FieldsSeq(entry["options"]) {
		if strings.HasPrefix(word, "ostree=") {
			words = append(words, word)
		}
	}
	w.write(root, sysroot.CommandLinePath, strings.Join(words, " ")+"\n")
}

// machineConfig is the text of the encapsulated file.
func (w *world) machineConfig(r runSpec) string {
	w.t.Helper()
	text := ""
	if r.MachineConfig != "" {
		text = w.text(r.MachineConfig)
	} else {
		text = must[string](w.t)(sysroot.MachineConfig{OSImageURL: w.substitute(r.Wanted)}.JSON())
	}
	if len(r.Set) == 0 && r.Release == "" {
		return text
	}
	var doc map[string]any
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		w.t.Fatal(err)
	}
	spec, _ := doc["spec"].(map[string]any)
	for k, v := range r.Set {
		if s, ok := v.(string); ok {
			v = w.substitute(s)
		}
		spec[k] = v
	}
	if metadata, ok := doc["metadata"].(map[string]any); ok && r.Release != "" {
		metadata["annotations"] = map[string]string{"machineconfiguration.openshift.io/release-image-version": r.Release}
	}
	return string(must[[]byte](w.t)(json.MarshalIndent(doc, "", "  "))) + "\n"
}

// place puts one thing below the root.
func (w *world) place(root *sysroot.Root, name, what string) {
	w.t.Helper()
	name = w.substitute(name)
	path := root.Path(name)
	target, isLink := strings.CutPrefix(what, "-> ")
	text, isText := strings.CutPrefix(what, "= ")
	switch {
	case what == "-":
		if err := os.RemoveAll(path); err != nil {
			w.t.Fatal(err)
		}
	case isLink:
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			w.t.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			w.t.Fatal(err)
		}
	case isText:
		w.write(root, name, w.substitute(text)+"\n")
	default:
		w.write(root, name, w.text(what))
	}
}

func (w *world) write(root *sysroot.Root, name, text string) {
	w.t.Helper()
	if err := root.WriteFile(name, text); err != nil {
		w.t.Fatal(fmt.Errorf("writing %s: %w", name, err))
	}
}
