// Package mcdlab runs the real machine-config-daemon on the files of nodes, to
// hold against it what oneboot predicts of it (mco.wouldSkip) and what oneboot
// does to a node for it. make test-mcd builds the daemon from its own module
// (test/mcd) and runs the tests, which have the build tag mcd.
//
// A node is a real ostree sysroot. The daemon runs in a chroot of it, with no
// network, and finds stand-ins for the programs that it calls there: the test's
// own binary under their names. The one for rpm-ostree answers from the node's
// deployments, origins and boot entries by the ostree command line tool, and
// makes real deployments.
package mcdlab
