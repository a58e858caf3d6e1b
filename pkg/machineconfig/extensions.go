package machineconfig

import (
	"slices"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// unread is the first release whose tables were not read. What it and those
// after it layer is not known.
const unread = "5.3"

// PackageSets returns the package sets that an extension has stood for since
// OpenShift 4.12, newest first; ok is false for a name that no release knows.
// The sets are those of RHCOS and SCOS; on Fedora CoreOS, up to 4.19, the
// daemon took any extension for the name of a package, and here such a name is
// unknown.
//
// Read from getSupportedExtensions in pkg/daemon/update.go (4.12 to 4.15) and
// SupportedExtensions in pkg/controller/common/helpers.go (4.16 on) of the
// machine-config-operator, at release-4.12@1d4cfffaad, 4.13@a57ca29123,
// 4.14@00b2e0b1cc, 4.15@1ffa8341fb, 4.16@7327bb2359, 4.17@3bdd678e83,
// 4.18@f313997e0b, 4.19@1a6905d980, 4.20@afed09939d, 4.21@db84d8368e,
// 4.22@9027c94cde, 4.23 and 5.0@d20efd9b9b, main@7ff337a4ff (5.2).
//
// The names are those of [Extensions].
func PackageSets(extension string) (sets []verdict.PackageSet, ok bool) {
	switch extension {
	case "kerberos": // a5bb45ccc, 4.11
		return []verdict.PackageSet{{Packages: []string{"krb5-workstation", "libkadm5"}, Releases: verdict.ReleaseRange{Since: "4.12", Before: unread}}}, true
	case "kernel-devel":
		return []verdict.PackageSet{{Packages: []string{"kernel-devel", "kernel-headers"}, Releases: verdict.ReleaseRange{Since: "4.12", Before: unread}}}, true
	case "sandboxed-containers":
		return []verdict.PackageSet{{Packages: []string{"kata-containers"}, Releases: verdict.ReleaseRange{Since: "4.12", Before: unread}}}, true
	case "usbguard":
		return []verdict.PackageSet{{Packages: []string{"usbguard"}, Releases: verdict.ReleaseRange{Since: "4.12", Before: unread}}}, true
	case "ipsec":
		return []verdict.PackageSet{
			// 098552cd5. LegacyExtensionPackages keeps the older set valid there.
			// The extensions images offer the third package since 4.19
			// (extensions/ in openshift/os), so that from there on the older
			// set alone is no proof.
			{Packages: []string{"NetworkManager-libreswan", "libreswan", "openvswitch3.5-ipsec"}, Releases: verdict.ReleaseRange{Since: "4.23", Before: unread}},
			{Packages: []string{"NetworkManager-libreswan", "libreswan"}, Releases: verdict.ReleaseRange{Since: "4.14", Before: "4.23"}},
		}, true
	case "sysstat": // 8ed4eb6c7
		return []verdict.PackageSet{{Packages: []string{"sysstat"}, Releases: verdict.ReleaseRange{Since: "4.18", Before: unread}}}, true
	case "two-node-ha": // a4131ad63
		return []verdict.PackageSet{{Packages: []string{"fence-agents-all", "pacemaker", "pcs"}, Releases: verdict.ReleaseRange{Since: "4.19", Before: unread}}}, true
	case "wasm": // ffb664e20, removed by 28f9c7246
		return []verdict.PackageSet{{Packages: []string{"crun-wasm"}, Releases: verdict.ReleaseRange{Since: "4.14", Before: "4.22"}}}, true
	}
	return nil, false
}

// SetsOf are the sets that the extension stands for in a release such as
// "4.16.3". Of a release that the tables do not know they are all that there are.
func SetsOf(extension, release string) []verdict.PackageSet {
	sets, _ := PackageSets(extension)
	if !(verdict.ReleaseRange{Since: "4.12", Before: unread}).Holds(release) {
		return sets
	}
	return slices.DeleteFunc(sets, func(s verdict.PackageSet) bool { return !s.Releases.Holds(release) })
}

// Extensions are the names that PackageSets knows, sorted.
func Extensions() []string {
	return []string{"ipsec", "kerberos", "kernel-devel", "sandboxed-containers", "sysstat", "two-node-ha", "usbguard", "wasm"}
}
