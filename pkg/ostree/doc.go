// Package ostree reads an ostree sysroot and its repository: deployments in
// libostree's order, the booted one, commits, refs and the directory trees
// behind them, and what they say as facts for package verdict. It is
// read-only, needs neither libostree nor rpm-ostree, and goes through package
// hostfs for every read.
//
// Objects are compared with their checksums before they are believed.
package ostree
