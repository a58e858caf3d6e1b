// Command image makes the container image of a program without a container
// engine: an OCI archive with the static binary and nothing else, as the
// Dockerfile makes it. Equal binaries make equal archives.
//
//	go run ./test/image -o bin/oneboot.oci.tar amd64=bin/oneboot
//	skopeo copy --all oci-archive:bin/oneboot.oci.tar docker://REGISTRY/oneboot:VERSION
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image: "+err.Error())
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	name := flags.String("name", "oneboot", "the program in the image")
	out := flags.String("o", "", "the archive to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *out == "" || flags.NArg() == 0 {
		return errors.New("usage: image [-name PROGRAM] -o ARCHIVE ARCHITECTURE=BINARY [ARCHITECTURE=BINARY]")
	}
	a := newArchive(*name)
	for _, arg := range flags.Args() {
		arch, path, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%s: not of the form ARCHITECTURE=BINARY", arg)
		}
		binary, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := a.add(arch, binary); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	content, err := a.bytes()
	if err != nil {
		return err
	}
	return os.WriteFile(*out, content, 0o644)
}
