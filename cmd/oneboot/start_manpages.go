//go:build manpages

package main

import (
	"fmt"
	"os"

	"github.com/oneboot/oneboot/cmd/internal/manpage"
)

// main writes the program's man pages and completions instead.
func main() {
	if err := manpage.Main(newRoot("oneboot"), programVersion()); err != nil {
		fmt.Fprintln(os.Stderr, "oneboot: "+err.Error())
		os.Exit(exitFailure)
	}
}
