// Package bootimage reads what CoreOS disk images there are and which of them a
// disk was made from: the stream documents of RHCOS, SCOS and Fedora CoreOS, the
// ConfigMap coreos-bootimages that OpenShift carries them in, and the aleph file
// that an installation leaves on its disk. It knows which part of a stream
// belongs to an OpenShift platform.
//
// None of it proves what a host has booted: an aleph file tells of the
// installation, and the version of a disk image is that of its base only.
package bootimage
