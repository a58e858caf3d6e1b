// Package inspect runs oneboot inspect, diff and validate on real images: ostree
// commits with and without a package list, node images, machine-os-content,
// extensions and release images, in a registry with TLS and a password. Every
// version is compared with what rpm says of the same database.
package inspect
