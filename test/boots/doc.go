// Package boots boots real nodes: a Debian system that ostree has deployed, in
// QEMU without KVM, with the units of the machine-config-operator, the real
// machine-config-daemon and oneboot. Each test counts the boots until the
// kubelet starts and measures the time.
//
// The tests need root, two processors, some minutes and the tools that
// "make deps-full" installs; the build tag "boots" (see "make test-full") keeps
// them out of the other tests. What takes the place of a real node's parts is
// in guest.
package boots
