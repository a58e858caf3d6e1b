package nativeimage

import (
	"fmt"
	"io"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/oneboot/oneboot/test/sysroot"
)

// DefaultChunks is the number of chunk layers of an image whose options name
// none.
const DefaultChunks = 3

// Options says how to build a native image. The zero value is an OCI image
// with gzip layers for the host's architecture, with the labels that
// ostree-ext writes.
type Options struct {
	Format      Format
	Compression Compression
	// Chunks is the most chunk layers after the commit layer; zero means
	// [DefaultChunks], and a negative number that there is the commit layer
	// alone, with all the content.
	Chunks int
	// Architecture is what the config says; the host's where empty.
	Architecture string
	// Created is the image's time; the commit's own where zero.
	Created time.Time
	// Labels are set over those that ostree-ext writes, true or not.
	Labels map[string]string
	// WithoutLabels are left out.
	WithoutLabels []string
	// HardlinkXattrs writes extended attributes in the older form: shared
	// objects and hard links to them.
	HardlinkXattrs bool
}

// Build builds the native image of a commit in a repository of mode bare. The
// layers are stored in dir.
func Build(dir, repo, commit string, opts Options) (*Image, error) {
	if opts.Format == DockerV2S2 && opts.Compression == Zstd {
		return nil, fmt.Errorf("building an image: Docker's format has no zstd layers")
	}
	entries, err := listCommit(repo, commit)
	if err != nil {
		return nil, err
	}
	m := &Image{Format: opts.Format, Commit: commit, Repo: repo}
	if err := m.addOstreeLayers(dir, entries, opts); err != nil {
		return nil, fmt.Errorf("writing the layers of %s: %w", commit, err)
	}
	created := opts.Created
	if created.IsZero() {
		seconds, err := commitTime(repo, commit)
		if err != nil {
			return nil, err
		}
		created = time.Unix(seconds, 0)
	}
	m.Config.Created = created
	m.Config.Architecture = opts.Architecture
	if m.Config.Architecture == "" {
		m.Config.Architecture = runtime.GOARCH
	}
	m.Config.Labels = m.labels(opts)
	m.Annotations = maps.Clone(m.Config.Labels)
	return m, m.seal()
}

// addOstreeLayers writes the commit layer and the chunk layers.
func (m *Image) addOstreeLayers(dir string, entries []entry, opts Options) error {
	chunks := chunksOf(entries, opts.Chunks)
	inChunk := map[string]bool{}
	for _, c := range chunks {
		maps.Copy(inChunk, c.objects)
	}
	first, err := writeLayer(dir, opts.Compression, func(w io.Writer) error {
		return newLayerWriter(w, m.Repo, opts.HardlinkXattrs).commitLayer(m.Commit, entries, inChunk)
	})
	if err != nil {
		return err
	}
	first.CreatedBy = "ostree export of commit " + m.Commit
	m.addLayer(first)
	for _, c := range chunks {
		l, err := writeLayer(dir, opts.Compression, func(w io.Writer) error {
			return newLayerWriter(w, m.Repo, opts.HardlinkXattrs).chunkLayer(entries, c.objects)
		})
		if err != nil {
			return err
		}
		l.objects = slices.Sorted(maps.Keys(c.objects))
		l.CreatedBy = strings.Join(c.components, " and ")
		l.Annotations = map[string]string{"ostree.components": strings.Join(c.components, ",")}
		m.addLayer(l)
	}
	return nil
}

func (m *Image) addLayer(l Layer) {
	m.Layers = append(m.Layers, l)
	m.Config.DiffIDs = append(m.Config.DiffIDs, l.DiffID)
	m.Config.History = append(m.Config.History, l.CreatedBy)
}

// labels are those of ostree-ext, then the caller's.
func (m *Image) labels(opts Options) map[string]string {
	labels := map[string]string{
		"ostree.commit":       m.Commit,
		"ostree.final-diffid": m.Layers[len(m.Layers)-1].DiffID,
	}
	for key, names := range map[string][]string{
		"version":              {"org.opencontainers.image.version", "version"},
		"ostree.bootable":      {"ostree.bootable"},
		"ostree.linux":         {"ostree.linux"},
		"rpmostree.inputhash":  {"rpmostree.inputhash"},
		"fedora-coreos.stream": {"fedora-coreos.stream"},
	} {
		value := metadataString(m.Repo, m.Commit, key)
		for _, name := range names {
			if value != "" {
				labels[name] = value
			}
		}
	}
	if labels["ostree.bootable"] != "" {
		labels["containers.bootc"] = "1"
	}
	maps.Copy(labels, opts.Labels)
	for _, name := range opts.WithoutLabels {
		delete(labels, name)
	}
	return labels
}

// A chunk is the content of a layer: whole components.
type chunk struct {
	components []string
	objects    map[string]bool
}

// chunksOf spreads the components over at most n chunks. An object that two
// components have goes with the first one.
func chunksOf(entries []entry, n int) []chunk {
	if n == 0 {
		n = DefaultChunks
	}
	if n < 0 {
		return nil
	}
	components := map[string][]string{}
	seen := map[string]bool{}
	for _, e := range entries {
		name := component(e.path)
		if e.kind == 'd' || name == "" || seen[e.checksum] {
			continue
		}
		seen[e.checksum] = true
		components[name] = append(components[name], e.checksum)
	}
	names := slices.Sorted(maps.Keys(components))
	chunks := make([]chunk, min(n, len(names)))
	for i, name := range names {
		c := &chunks[i%len(chunks)]
		c.components = append(c.components, name)
		if c.objects == nil {
			c.objects = map[string]bool{}
		}
		for _, o := range components[name] {
			c.objects[o] = true
		}
	}
	return chunks
}

// component is the package that a path belongs to; empty for what stays in the
// commit layer.
func component(name string) string {
	switch {
	case strings.HasPrefix(name, "/usr/lib/modules/"):
		return "kernel"
	case name == "/usr/bin/kubelet":
		return "openshift-kubelet"
	case name == "/usr/bin/crio":
		return "cri-o"
	case strings.HasPrefix(name, "/usr/bin/"):
		return path.Base(name)
	case strings.HasPrefix(name, "/"+sysroot.FillerDir+"/"):
		// The last digit spreads a large filler over many layers.
		return "filler-" + name[len(name)-1:]
	}
	return ""
}
