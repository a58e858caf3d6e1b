// Package osimage opens an OS image by its metadata and by partial reads: it
// never pulls one. It answers which content the image is (manifest, config,
// diff ids, inner ostree commit) with bytes that were checked against the
// digest which pins them, and what the host's configuration asks of it.
//
// All registry access of the project is here. It goes through
// go.podman.io/image, the library that the host's podman, skopeo and (through
// skopeo) rpm-ostree use, so that registries.conf, policy.json, certs.d and
// auth files mean what they mean to the host. The files themselves are read
// below a [hostfs.Root] by [LoadConfig].
//
// Whatever goes wrong is an [*Error] with a stable [Code]; to the decision all
// of them mean unknown.
package osimage
