package osimage

import (
	"fmt"
	"strings"
)

type fileKind int

const (
	otherFile fileKind = iota
	metadataFile
	rpmFile
)

// kindOf says what a file may tell about packages on offer.
func kindOf(name string) fileKind {
	if name == extensionsList {
		return metadataFile
	}
	isRPM := strings.HasSuffix(name, ".rpm") && !strings.HasSuffix(name, ".src.rpm")
	if isRPM && !strings.Contains(name, "/") {
		return rpmFile
	}
	for _, dir := range []string{extensionsDir, legacyExtensionsDir} {
		rest, ok := strings.CutPrefix(name, dir+"/")
		switch {
		case !ok:
		case rest == repomd, primaryName.MatchString(rest):
			return metadataFile
		case isRPM && dir == legacyExtensionsDir:
			return rpmFile
		}
	}
	return otherFile
}

// onTheWay reports whether a path must be a folder for the others to be where
// they seem to be: it is one of the extensions folders or above or in one.
func onTheWay(name string) bool {
	for _, dir := range []string{extensionsDir + "/repodata", legacyExtensionsDir + "/repodata"} {
		if name == "" || name == dir || strings.HasPrefix(dir, name+"/") {
			return true
		}
	}
	return false
}

// concerns reports whether hiding a path may hide something that matters.
func concerns(name string) bool {
	return onTheWay(name) || kindOf(name) != otherFile ||
		strings.HasPrefix(name, extensionsDir+"/") || strings.HasPrefix(name, legacyExtensionsDir+"/")
}

// parent is the folder of a name; empty for the root.
func parent(name string) string {
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[:i]
	}
	return ""
}

// checkDepth keeps the walk over a path's folders short.
func checkDepth(name string) error {
	if strings.Count(name, "/") > maxOfferDepth {
		return fmt.Errorf("%.200q... is nested deeper than %d folders", name, maxOfferDepth)
	}
	return nil
}
