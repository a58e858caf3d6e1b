package osimage

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"

	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"
	"go.yaml.in/yaml/v3"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/verdict"
)

const (
	// lookasideDir holds the copies of signatures.
	lookasideDir = "/lookaside"
	// defaultLookaside is where root's tools look for signatures when
	// registries.d names no place.
	defaultLookaside = "/var/lib/containers/sigstore"
)

// Limits on the signatures of one manifest.
const (
	maxSignatures     = 128 // as in the library
	maxSignatureBytes = 4 << 20
)

// signatureStores is a file of registries.d, in the format of
// containers-registries.d(5).
type signatureStores struct {
	Default *signatureStore           `yaml:"default-docker,omitempty"`
	Docker  map[string]signatureStore `yaml:"docker,omitempty"`
}

// signatureStore says where the signatures of some images are. The fields for
// writing are here only so that a malformed one is noticed.
type signatureStore struct {
	Lookaside        string `yaml:"lookaside,omitempty"`
	LookasideStaging string `yaml:"lookaside-staging,omitempty"`
	// Sigstore and SigstoreStaging are older names.
	Sigstore        string `yaml:"sigstore,omitempty"`
	SigstoreStaging string `yaml:"sigstore-staging,omitempty"`
	Attachments     *bool  `yaml:"use-sigstore-attachments,omitempty"`
}

// stageStores copies registries.d and turns the folders of signatures that it
// names, and the one that the library knows by itself, to private ones:
// [Image.stageSignatures] fills them from below the root.
func (c *Config) stageStores(root *hostfs.Root) error {
	names, err := c.stageDropIns(root, registriesD, ".yaml")
	if err != nil {
		return err
	}
	files := map[string]signatureStores{}
	home := path.Join(registriesD, "default.yaml")
	for _, name := range names {
		b, err := root.ReadFile(c.hostPath(name), maxConfigFile)
		if err != nil {
			return fail(RegistriesConfInvalid, c.hostPath(name), fmt.Errorf("reading: %w", bare(err)))
		}
		f, err := c.redirect(b)
		if err != nil {
			continue // the copy stays as it is, and the library says what is wrong when it is used
		}
		files[name] = f
		if f.Default != nil || files[home].Default == nil {
			home = name
		}
	}
	f := files[home]
	if f.Default == nil {
		f.Default = &signatureStore{}
	}
	f.Default.Lookaside = cmp.Or(f.Default.Lookaside, c.lookasideURL(defaultLookaside))
	files[home] = f
	for name, f := range files {
		b, err := yaml.Marshal(f)
		if err != nil {
			return fail(RegistriesConfInvalid, c.hostPath(name), fmt.Errorf("making a private copy: %w", err))
		}
		if err := c.stage(name, b); err != nil {
			return err
		}
	}
	return nil
}

// redirect parses a file of registries.d.
func (c *Config) redirect(b []byte) (signatureStores, error) {
	var f signatureStores
	if err := yaml.Unmarshal(b, &f); err != nil {
		return f, err
	}
	if f.Default != nil {
		c.redirectStore(f.Default)
	}
	for name, s := range f.Docker {
		c.redirectStore(&s)
		f.Docker[name] = s
	}
	return f, nil
}

func (c *Config) redirectStore(s *signatureStore) {
	s.Lookaside = cmp.Or(s.Lookaside, s.Sigstore)
	s.Sigstore, s.SigstoreStaging, s.LookasideStaging = "", "", ""
	// What is no address at all is left for the library to refuse.
	if u, err := url.Parse(s.Lookaside); err == nil && u.Scheme == "file" {
		s.Lookaside = c.lookasideURL(u.Path)
	}
}

func (c *Config) lookasideURL(dir string) string {
	u := url.URL{Scheme: "file", Path: c.dir + lookasideDir + path.Clean("/"+dir)}
	return u.String()
}

// stageSignatures copies a manifest's signatures from the host's folders to
// where the library will look for them.
func (img *Image) stageSignatures(manifest verdict.Digest) error {
	if !img.isRegistry() {
		return nil
	}
	refs, err := img.pullReferences()
	if err != nil {
		return &Error{Code: RegistriesConfInvalid, Source: img.name, Message: img.cfg.clean(err.Error()), Err: err}
	}
	for _, ref := range refs {
		u, err := docker.SignatureStorageBaseURL(img.sys, ref, false)
		if err != nil {
			return &Error{Code: RegistriesConfInvalid, Source: img.cfg.hostPath(registriesD), Message: img.cfg.clean(err.Error()), Err: err}
		}
		dir, ok := strings.CutPrefix(u.Path, img.cfg.dir+lookasideDir)
		if u.Scheme != "file" || !ok {
			continue
		}
		if err := img.cfg.stageLookaside(dir + "@" + strings.Replace(string(manifest), ":", "=", 1)); err != nil {
			return err
		}
	}
	return nil
}

// pullReferences are the references by which the image may be pulled: those of
// the mirrors too, for it is by them that the library finds signatures.
func (img *Image) pullReferences() ([]types.ImageReference, error) {
	named := img.ref.DockerReference()
	registry, err := sysregistriesv2.FindRegistry(img.sys, named.Name())
	if err != nil {
		return nil, err
	}
	if registry == nil {
		return []types.ImageReference{img.ref}, nil
	}
	sources, err := registry.PullSourcesFromReference(named)
	if err != nil {
		return nil, err
	}
	var refs []types.ImageReference
	for _, s := range sources {
		ref, err := docker.NewReference(s.Reference)
		if err != nil {
			return nil, err
		}
		refs = append(refs, ref)
	}
	return refs, nil
}

// stageLookaside copies the files signature-1, signature-2 and so on.
func (c *Config) stageLookaside(dir string) error {
	for i := range maxSignatures {
		copied := fmt.Sprintf("%s/signature-%d", path.Clean(dir), i+1)
		name := c.belowRoot(copied)
		b, ok, err := readOptional(c.root, name, maxSignatureBytes)
		switch {
		case errors.Is(err, hostfs.ErrTooLarge):
			return fail(SignatureMalformed, name, err)
		case err != nil:
			return fail(SignatureUnreadable, name, fmt.Errorf("reading: %w", bare(err)))
		case !ok:
			return nil
		}
		if err := c.stage(lookasideDir+copied, b); err != nil {
			return err
		}
	}
	return failText(SignatureMalformed, dir, fmt.Sprintf("%d signatures or more", maxSignatures))
}

// belowRoot is where a file is that the configuration names by its path on the
// host.
func (c *Config) belowRoot(name string) string {
	name = path.Clean("/" + name)
	if rest, ok := strings.CutPrefix(name, "/var/"); ok {
		return c.varPath("/" + rest)
	}
	return c.hostPath(name)
}
