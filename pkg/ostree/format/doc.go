// Package format decodes the byte formats of ostree and of what is built on
// it: GVariant, commit and directory objects, ref names, the origin keyfile
// and the ostree container image reference. It works on bytes only and does
// no I/O. Whatever is not in the form that libostree writes is an error.
package format
