package forecast

// A Content identifies an OS.
type Content struct {
	// ManifestDigest and ConfigDigest are those of the image that it was made of.
	ManifestDigest string `json:"manifestDigest,omitempty" yaml:"manifestDigest"`
	ConfigDigest   string `json:"configDigest,omitempty"   yaml:"configDigest"`
	// Commit is the inner ostree commit.
	Commit string `json:"commit,omitempty" yaml:"commit"`
	// Derived says whether layers follow the commit.
	Derived bool `json:"derived,omitempty" yaml:"derived"`
	// Kernel is the kernel's release.
	Kernel string `json:"kernel,omitempty" yaml:"kernel"`
}

// A Target is what the nodes of a pool are to run.
type Target struct {
	Pool string `json:"pool"`
	// OSImage is the pull spec; empty where the pool's objects were not read.
	OSImage string `json:"osImage,omitempty"`
	// Release is that of OpenShift, such as 4.19.3; empty where it is not known.
	Release string `json:"release,omitempty"`
	// Stream is the pool's OS image stream, such as rhel-10; empty where it has none.
	Stream string `json:"stream,omitempty"`
	// Version is that of the OS; for show, and for what is inferred.
	Version         string   `json:"version,omitempty"`
	KernelArguments []string `json:"kernelArguments,omitempty"`
	Extensions      []string `json:"extensions,omitempty"`
	// KernelType is empty or "default" for the default kernel.
	KernelType string `json:"kernelType,omitempty"`
	FIPS       bool   `json:"fips,omitempty"`
	// Layered says that the pool is layered on the cluster.
	Layered bool `json:"layered,omitempty"`
	// ExtensionsImage is the pull spec of what can be layered on it; empty where no
	// object says.
	ExtensionsImage string `json:"-"`
	// Unread names what may want extensions or another kernel and was not read.
	Unread []string `json:"unread,omitempty"`
	// Image is what was read of the image; nil where it was not asked.
	Image *Image `json:"-"`
}

// An Image is what a registry says of a target.
type Image struct {
	Content
	// Architecture is in Go's naming; empty where it is not known.
	Architecture string
	// List says that the pull spec names a manifest list.
	List bool
	// Bytes and DerivedBytes are the sizes of all layers and of those upon the
	// commit, as they are fetched; Layers and DerivedLayers count them.
	Bytes, DerivedBytes   int64
	Layers, DerivedLayers int
	// RHEL is the version of RHEL, such as 9.6.
	RHEL string
}
