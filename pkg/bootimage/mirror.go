package bootimage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A Mirror fetches files of streams into a folder that a web server of an
// air-gapped site serves.
type Mirror struct {
	Downloader *Downloader
	// To is the folder, BaseURL the address under which it is served.
	To, BaseURL string
	// OpenShiftVersion is the minor version, such as 4.19, that the images are for
	// in an AgentServiceConfig; taken from the release where empty.
	OpenShiftVersion string
}

// The files that a mirror writes beside the images.
const (
	ConfigMapFile = "coreos-bootimages.yaml"
	OSImagesFile  = "agentserviceconfig-osimages.yaml"
)

// A Mirrored is what a mirror has.
type Mirrored struct {
	Files []File
	// ConfigMap and OSImages are the paths of the two documents; OSImages is empty
	// where no live ISO is among the files.
	ConfigMap, OSImages string
}

// Check returns an error of usage.
func (m *Mirror) Check() error {
	u, err := url.Parse(m.BaseURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return errors.New("the base URL is to be http(s)://HOST/PATH, without credentials and query")
	}
	return nil
}

// Run fetches the sets that the queries name from each of the streams and then
// writes the documents: what is there and good is not fetched again.
func (m *Mirror) Run(ctx context.Context, src *Source, streams []*Stream, queries []Query) (*Mirrored, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	all, err := m.sets(streams, queries)
	if err != nil {
		return nil, err
	}
	out := &Mirrored{}
	documents := map[string]json.RawMessage{}
	var images []osImage
	for i, s := range streams {
		for _, set := range all[i] {
			files, err := m.fetch(ctx, set)
			if err != nil {
				return nil, err
			}
			out.Files = append(out.Files, files...)
			if set.Platform == "metal" && set.Format == "iso" {
				images = append(images, osImage{m.openShiftVersion(src), set.Architecture, m.address(set, set.Parts[0]), set.Version})
			}
		}
		b, err := s.relocate(all[i], m.address)
		if err != nil {
			return nil, fmt.Errorf("stream %q: %w", s.Name, err)
		}
		documents[s.Name] = b
	}
	return out, m.write(src, streams, documents, images, out)
}

// sets are those of each stream. No two files may have one place: the documents
// would name one with the checksum of the other.
func (m *Mirror) sets(streams []*Stream, queries []Query) ([][]Set, error) {
	all := make([][]Set, len(streams))
	sums := map[string]string{}
	for i, s := range streams {
		for _, q := range queries {
			set, err := s.Select(q)
			if err != nil {
				return nil, fmt.Errorf("stream %q: %w", s.Name, err)
			}
			all[i] = append(all[i], set)
			for _, p := range set.Parts {
				at := path.Join(folder(set), p.Name)
				if sum, taken := sums[at]; taken && sum != p.SHA256 {
					return nil, fmt.Errorf("stream %q: two files would be %s: mirror them into folders of their own", s.Name, at)
				}
				sums[at] = p.SHA256
			}
		}
	}
	return all, nil
}

// fetch gets the files of a set. The folders below the mirror's are its own: one
// that is a link would have it write somewhere else.
func (m *Mirror) fetch(ctx context.Context, set Set) ([]File, error) {
	d := *m.Downloader
	d.Dir = m.To
	for element := range strings.SplitSeq(folder(set), "/") {
		d.Dir = filepath.Join(d.Dir, element)
		if fi, err := os.Lstat(d.Dir); err == nil && !fi.IsDir() {
			return nil, fmt.Errorf("%s: it is no folder, or a link to one: remove it", d.Dir)
		}
	}
	return d.GetAll(ctx, set.Parts)
}

// folder is where a set is below the mirror's.
func folder(s Set) string {
	name := s.Stream
	if name == "" {
		name = "default"
	}
	return path.Join(clean(name), clean(s.Version), clean(s.Architecture))
}

// clean makes one element of a path of a name in a stream.
func clean(name string) string {
	if !plainName(name) || name == "" {
		return "other"
	}
	return name
}

func (m *Mirror) address(s Set, p Part) string {
	return strings.TrimRight(m.BaseURL, "/") + "/" + (&url.URL{Path: path.Join(folder(s), p.Name)}).EscapedPath()
}

func (m *Mirror) openShiftVersion(src *Source) string {
	if m.OpenShiftVersion != "" {
		return m.OpenShiftVersion
	}
	parts := strings.SplitN(src.Release, ".", 3)
	if len(parts) < 2 {
		return ""
	}
	return parts[0] + "." + parts[1]
}

// relocate is the stream's own document with other addresses for the sets. The
// signatures of files are left where they are.
func (s *Stream) relocate(sets []Set, address func(Set, Part) string) (json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(s.Raw))
	dec.UseNumber()
	var doc map[string]any
	if err := dec.Decode(&doc); err != nil {
		return nil, err
	}
	for _, set := range sets {
		for _, p := range set.Parts {
			at := any(doc)
			for _, key := range []string{"architectures", set.Architecture, "artifacts", set.Platform, "formats", set.Format, p.Role} {
				object, ok := at.(map[string]any)
				if !ok {
					return nil, fmt.Errorf("no %s in the document", key)
				}
				at = object[key]
			}
			object, ok := at.(map[string]any)
			if !ok {
				return nil, fmt.Errorf("no %s in the document", p.Role)
			}
			object["location"] = address(set, p)
		}
	}
	return json.MarshalIndent(doc, "", "  ")
}

// An osImage is an entry of spec.osImages (AgentServiceConfig in
// api/v1beta1/agentserviceconfig_types.go of assisted-service).
type osImage struct {
	OpenShiftVersion string `yaml:"openshiftVersion"`
	CPUArchitecture  string `yaml:"cpuArchitecture"`
	URL              string `yaml:"url"`
	Version          string `yaml:"version"`
}

// write writes the documents, each at once.
func (m *Mirror) write(src *Source, streams []*Stream, documents map[string]json.RawMessage, images []osImage, out *Mirrored) error {
	var cm configMap
	cm.APIVersion, cm.Kind, cm.Metadata.Name = "v1", "ConfigMap", ConfigMapName
	cm.Data = map[string]string{}
	if src.Release != "" {
		cm.Data["releaseVersion"] = src.Release
	}
	// The older key has one stream: that of RHEL 9 wherever there is one.
	one := streams[0].Name
	if slices.ContainsFunc(streams, func(s *Stream) bool { return s.Name == "rhel-9" }) {
		one = "rhel-9"
	}
	cm.Data["stream"] = string(documents[one])
	if len(src.Streams) > 1 {
		all, err := json.MarshalIndent(documents, "", "  ")
		if err != nil {
			return err
		}
		cm.Data["streams"] = string(all)
	}
	text, err := yaml.Marshal(cm)
	if err != nil {
		return err
	}
	out.ConfigMap = filepath.Join(m.To, ConfigMapFile)
	if err := replaceFile(out.ConfigMap, text); err != nil {
		return err
	}
	if len(images) == 0 {
		return nil
	}
	if images[0].OpenShiftVersion == "" {
		return fmt.Errorf("%s: the source names no OpenShift release: say --openshift-version", OSImagesFile)
	}
	if text, err = yaml.Marshal(map[string]any{"osImages": images}); err != nil {
		return err
	}
	out.OSImages = filepath.Join(m.To, OSImagesFile)
	return replaceFile(out.OSImages, text)
}

// replaceFile writes a file beside its place, and then there.
func replaceFile(name string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, ignoreMissing(os.Remove(f.Name())))
	}
	return syncDir(filepath.Dir(name))
}
