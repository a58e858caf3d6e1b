package bootimage

import (
	"maps"
	"slices"
	"strings"

	"github.com/coreos/stream-metadata-go/stream"
	"github.com/coreos/stream-metadata-go/stream/rhcos"
)

// Kinds of what a stream offers.
const (
	// KindFiles are files to download.
	KindFiles = "files"
	// KindAMI are images of Amazon, KindWindowsAMI those that nodes with a
	// license for Windows containers boot.
	KindAMI        = "ami"
	KindWindowsAMI = "ami-winli"
	// KindImage is an image that a cloud has by a name of its own.
	KindImage = "image"
	// KindObject is a file in a cloud's object storage.
	KindObject = "object"
	// KindContainerDisk is a container image with a disk in it for KubeVirt. It
	// is no OS image, though it may lie in one repository with them.
	KindContainerDisk = "container-disk"
	// KindVHD is a file in Azure's storage, to make an image from.
	KindVHD = "vhd"
	// KindMarketplace are images in Azure's marketplace; their versions are the
	// marketplace's own.
	KindMarketplace = "marketplace"
)

// An Offer is what a stream has for a platform, of one kind and version.
type Offer struct {
	Stream       string `json:"stream"`
	Architecture string `json:"architecture"`
	// Platform is the name in the stream.
	Platform string `json:"platform"`
	Version  string `json:"version"`
	Kind     string `json:"kind"`
	// Formats are those of files.
	Formats []string `json:"formats,omitempty"`
	// Images are what a cloud has, sorted by region or plan.
	Images []CloudImage `json:"images,omitempty"`
}

// A CloudImage is an image that a cloud has already.
type CloudImage struct {
	// Region is the cloud's; empty where the image is in all of them.
	Region string `json:"region,omitempty"`
	// Plan is a marketplace's plan and the machines' generation.
	Plan string `json:"plan,omitempty"`
	// Image is what the cloud calls it.
	Image string `json:"image"`
}

// Offers lists what a stream has, sorted by architecture and platform, files
// before cloud images.
func (s *Stream) Offers() []Offer {
	var out []Offer
	for _, name := range slices.Sorted(maps.Keys(s.Metadata.Architectures)) {
		a := s.Metadata.Architectures[name]
		l := lister{stream: s.Name, arch: name}
		for platform, p := range a.Artifacts {
			l.offers = append(l.offers, Offer{
				Stream: s.Name, Architecture: name, Platform: platform, Version: p.Release, Kind: KindFiles,
				Formats: slices.Sorted(maps.Keys(p.Formats)),
			})
		}
		l.images(a.Images)
		if x := a.RHELCoreOSExtensions; x != nil {
			l.extensions(x)
		}
		slices.SortStableFunc(l.offers, func(a, b Offer) int { return strings.Compare(a.Platform, b.Platform) })
		out = append(out, l.offers...)
	}
	return out
}

// A lister lists the offers for an architecture.
type lister struct {
	stream, arch string
	offers       []Offer
}

// add makes an offer of each version.
func (l *lister) add(platform, kind string, versions map[string][]CloudImage) {
	for _, version := range slices.Sorted(maps.Keys(versions)) {
		images := versions[version]
		slices.SortFunc(images, func(a, b CloudImage) int {
			return strings.Compare(a.Region+"\x00"+a.Plan, b.Region+"\x00"+b.Plan)
		})
		l.offers = append(l.offers, Offer{Stream: l.stream, Architecture: l.arch, Platform: platform, Version: version, Kind: kind, Images: images})
	}
}

func (l *lister) images(i stream.Images) {
	for _, r := range []struct {
		platform, kind string
		images         *stream.ReplicatedImage
	}{{"aliyun", KindImage, i.Aliyun}, {"aws", KindAMI, i.Aws}} {
		if r.images == nil {
			continue
		}
		versions := map[string][]CloudImage{}
		for region, image := range r.images.Regions {
			versions[image.Release] = append(versions[image.Release], CloudImage{Region: region, Image: image.Image})
		}
		l.add(r.platform, r.kind, versions)
	}
	for _, r := range []struct {
		platform string
		objects  *stream.ReplicatedObject
	}{{"ibmcloud", i.Ibmcloud}, {"powervs", i.PowerVS}} {
		if r.objects == nil {
			continue
		}
		versions := map[string][]CloudImage{}
		for region, o := range r.objects.Regions {
			versions[o.Release] = append(versions[o.Release], CloudImage{Region: region, Image: o.Bucket + "/" + o.Object})
		}
		l.add(r.platform, KindObject, versions)
	}
	if g := i.Gcp; g != nil {
		l.add("gcp", KindImage, map[string][]CloudImage{g.Release: {{Image: "projects/" + g.Project + "/global/images/" + g.Name}}})
	}
	if k := i.KubeVirt; k != nil {
		image := k.DigestRef
		if image == "" {
			image = k.Image
		}
		l.add("kubevirt", KindContainerDisk, map[string][]CloudImage{k.Release: {{Image: image}}})
	}
}

func (l *lister) extensions(x *rhcos.Extensions) {
	if d := x.AzureDisk; d != nil {
		l.add("azure", KindVHD, map[string][]CloudImage{d.Release: {{Image: d.URL}}})
	}
	if x.AwsWinLi != nil {
		versions := map[string][]CloudImage{}
		for region, image := range x.AwsWinLi.Regions {
			versions[image.Release] = append(versions[image.Release], CloudImage{Region: region, Image: image.Image})
		}
		l.add("aws", KindWindowsAMI, versions)
	}
	if x.Marketplace == nil || x.Marketplace.Azure == nil {
		return
	}
	versions := map[string][]CloudImage{}
	m := x.Marketplace.Azure
	for plan, images := range map[string]*rhcos.AzureMarketplaceImages{
		"no-purchase-plan": m.NoPurchasePlan, "ocp": m.OCP, "opp": m.OPP, "oke": m.OKE,
		"ocp-emea": m.OCPEMEA, "opp-emea": m.OPPEMEA, "oke-emea": m.OKEEMEA,
	} {
		if images == nil {
			continue
		}
		for generation, image := range map[string]*rhcos.AzureMarketplaceImage{"hyperVGen1": images.Gen1, "hyperVGen2": images.Gen2} {
			if image != nil {
				versions[image.Version] = append(versions[image.Version], CloudImage{Plan: plan + " " + generation, Image: image.URN()})
			}
		}
	}
	l.add("azure", KindMarketplace, versions)
}
