//go:build manpages

package main

import (
	"fmt"
	"os"

	"github.com/oneboot/oneboot/cmd/internal/manpage"
)

// version is set by the linker.
var version string //nolint:gochecknoglobals // the linker's only handle

// main writes the program's man pages and completions instead.
func main() {
	if err := manpage.Main(newRoot(), version); err != nil {
		fmt.Fprintln(os.Stderr, "oneboot-cluster: "+err.Error())
		os.Exit(1)
	}
}
