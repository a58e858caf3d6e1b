// Rpm-ostree stands in for the real one on a live root: it notes that it was
// called and prints what the test has left for it.
package main

import (
	"fmt"
	"os"
	"strings"
)

const dir = "/var/rpm-ostree"

func main() {
	err := os.WriteFile(dir+"/called", []byte(strings.Join(os.Args[1:], " ")), 0o644)
	if err == nil {
		var status []byte
		if status, err = os.ReadFile(dir + "/status.json"); err == nil {
			_, err = os.Stdout.Write(status)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
