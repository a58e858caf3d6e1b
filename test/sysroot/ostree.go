package sysroot

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Ostree runs the ostree command line tool and returns its standard output
// without the last newline. An error holds what the tool wrote to standard
// error.
func Ostree(args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.Command("ostree", args...)
	// The time zone and language must not show in any output.
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("running ostree %s: %w: %s", strings.Join(shorten(args), " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSuffix(stdout.String(), "\n"), nil
}

// shorten cuts long arguments (a package list has tens of kilobytes) to what
// an error message can hold.
func shorten(args []string) []string {
	const most = 80
	short := make([]string, len(args))
	for i, a := range args {
		if len(a) > most {
			a = a[:most] + "..."
		}
		short[i] = a
	}
	return short
}
