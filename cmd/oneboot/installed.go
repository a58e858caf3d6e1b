package main

import (
	"fmt"
	"strings"

	"github.com/oneboot/oneboot/pkg/bootimage"
	"github.com/oneboot/oneboot/pkg/hostfs"
)

// maxInstalled is what fits on a line.
const maxInstalled = 60

// installedText says what was installed on a host's disk, by its aleph file;
// empty where there is none. It is for a person who wonders which disk image a
// node was made from, and no part of a verdict.
func installedText(dir string) string {
	root, err := hostfs.Open(dir)
	if err != nil {
		return ""
	}
	defer root.Close()
	a, where, err := bootimage.ReadAleph(root)
	if err != nil || a == nil {
		return "" // whoever looks for the file finds it
	}
	var made []string
	for _, s := range []string{a.Version, a.Ref} {
		// A long one is the path of an archive where the disk was built.
		if s = short(clean(s)); s != "" && len(s) <= maxInstalled {
			made = append(made, s)
		}
	}
	return fmt.Sprintf("disk    made from %s\n        says %s\n", strings.Join(made, " "), where)
}
