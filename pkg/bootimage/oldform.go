package bootimage

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coreos/stream-metadata-go/stream"
)

// An OldForm is a file rhcos.json as openshift/installer had it up to OpenShift
// 4.7, one for each architecture (data/data/rhcos-amd64.json). What a stream does
// not say is not in it: the commit (ostree-commit, ostree-version), the
// container (oscontainer) and the sizes of files.
type OldForm struct {
	AMIs    map[string]OldAMI   `json:"amis,omitempty"`
	Azure   *OldAzure           `json:"azure,omitempty"`
	BaseURI string              `json:"baseURI"`
	BuildID string              `json:"buildid"`
	GCP     *OldGCP             `json:"gcp,omitempty"`
	Images  map[string]OldImage `json:"images"`
}

// An OldAMI is an image in one of Amazon's regions.
type OldAMI struct {
	HVM string `json:"hvm"`
}

// An OldAzure is the disk in Azure's storage.
type OldAzure struct {
	Image string `json:"image"`
	URL   string `json:"url"`
}

// An OldGCP is Google's image.
type OldGCP struct {
	Image   string `json:"image"`
	Project string `json:"project,omitempty"`
}

// An OldImage is a file below baseURI.
type OldImage struct {
	Path               string `json:"path"`
	SHA256             string `json:"sha256"`
	UncompressedSHA256 string `json:"uncompressed-sha256,omitempty"`
}

// OldForm converts what a stream has for an architecture. The old form has one
// version and one folder of files: a stream with several is an error.
func (s *Stream) OldForm(architecture string) (*OldForm, error) {
	name, a, err := s.architecture(architecture)
	if err != nil {
		return nil, err
	}
	old := &OldForm{Images: map[string]OldImage{}}
	for _, platform := range slices.Sorted(maps.Keys(a.Artifacts)) {
		p := a.Artifacts[platform]
		if old.BuildID != "" && old.BuildID != p.Release {
			return nil, fmt.Errorf("%s: files of %s and of %s: the old form has one version", name, old.BuildID, p.Release)
		}
		old.BuildID = p.Release
		for _, format := range slices.Sorted(maps.Keys(p.Formats)) {
			if err := old.add(platform, format, len(p.Formats) > 1, p.Formats[format]); err != nil {
				return nil, fmt.Errorf("%s %s %s: %w", name, platform, format, err)
			}
		}
	}
	if err := old.setBase(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	old.setClouds(a)
	return old, nil
}

// add puts the files of a format under the names of the old form, their
// locations whole as yet.
func (o *OldForm) add(platform, format string, several bool, f stream.ImageFormat) error {
	parts, err := partsOf(f)
	if err != nil {
		return err
	}
	for _, p := range parts {
		key := oldKey(platform, format, several)
		if p.Role != "disk" {
			key = "live-" + p.Role
		}
		if _, ok := o.Images[key]; ok {
			return fmt.Errorf("another file is called %s already", key)
		}
		o.Images[key] = OldImage{Path: p.Location, SHA256: p.SHA256, UncompressedSHA256: p.UncompressedSHA256}
	}
	return nil
}

// oldKey is the old form's name of a disk.
func oldKey(platform, format string, several bool) string {
	bare := strings.TrimSuffix(format, "."+compression(format))
	switch {
	case platform == "metal" && bare == "raw":
		return "metal"
	case platform == "metal" && bare == "4k.raw":
		return "metal4k"
	case platform == "metal" && bare == "iso":
		return "live-iso"
	case several:
		return platform + "-" + bare
	}
	return platform
}

// setBase takes the folder that all files are in from their locations.
func (o *OldForm) setBase() error {
	for _, key := range slices.Sorted(maps.Keys(o.Images)) {
		location := o.Images[key].Path
		folder := location[:strings.LastIndexByte(location, '/')+1]
		if o.BaseURI != "" && o.BaseURI != folder {
			return fmt.Errorf("files in %s and in %s: the old form has one folder", o.BaseURI, folder)
		}
		o.BaseURI = folder
	}
	if o.BaseURI == "" {
		return errors.New("the stream has no files for it, and the old form is about files")
	}
	for key, image := range o.Images {
		image.Path = strings.TrimPrefix(image.Path, o.BaseURI)
		o.Images[key] = image
	}
	return nil
}

func (o *OldForm) setClouds(a stream.Arch) {
	if aws := a.Images.Aws; aws != nil {
		o.AMIs = map[string]OldAMI{}
		for region, image := range aws.Regions {
			o.AMIs[region] = OldAMI{image.Image}
		}
	}
	if g := a.Images.Gcp; g != nil {
		o.GCP = &OldGCP{Image: g.Name, Project: g.Project}
	}
	if x := a.RHELCoreOSExtensions; x != nil && x.AzureDisk != nil {
		u := x.AzureDisk.URL
		o.Azure = &OldAzure{Image: u[strings.LastIndexByte(u, '/')+1:], URL: u}
	}
}
