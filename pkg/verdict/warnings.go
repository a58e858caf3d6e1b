package verdict

import "fmt"

// zstdRPMOSTree is the first release of rpm-ostree that unpacks layers
// compressed with zstd: its ostree-ext is 0.13.4 (ostreedev/ostree-rs-ext#623),
// while that of 2024.5 fails with "Unhandled layer type".
const zstdRPMOSTree = "2024.6"

// forecastWarnings says what may go wrong with a pivot, as far as the facts
// tell. It never takes part in the decision.
func forecastWarnings(b Booted, t Target) []string {
	layers, _ := t.ManifestLayers.Get()
	n := 0
	for _, l := range layers {
		if l.Zstd && !b.Blobs[l.Digest] {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	host := "this host's version is not known"
	if packages, ok := b.Packages.Get(); ok {
		evra, version := onlyVersion(packages, "rpm-ostree")
		if version != "" && compareVersions(version, zstdRPMOSTree) >= 0 {
			return nil
		}
		host = "this host has " + evra
	}
	return []string{fmt.Sprintf("%d layers to pull are compressed with zstd, which rpm-ostree before %s cannot unpack unless its build has the fix (%s): the pivot may fail", n, zstdRPMOSTree, host)}
}
