//go:build !manpages

package main

import (
	"io"
	"os"

	"github.com/sirupsen/logrus"
)

func main() {
	// The registry library logs to it; what matters is in the verdict.
	logrus.SetOutput(io.Discard)
	os.Exit(run(os.Args))
}
