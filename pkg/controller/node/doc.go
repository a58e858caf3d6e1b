// Package node reports what became of a node's first boot: as metrics, in the
// Node's annotations and as one Event. It runs on the node, reads the host's
// files below a root and never writes there, and changes no other Node than
// its own.
package node
