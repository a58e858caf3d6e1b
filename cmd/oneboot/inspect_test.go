package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/oneboot/oneboot/test/nativeimage"
)

// scriptImage is "image DIR": a native image in the form of containers/image's
// dir transport.
func scriptImage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: image DIR")
	}
	made, err := nodeParts.get()
	ts.Check(err)
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o755))
	ts.Check(os.WriteFile(filepath.Join(dir, "version"), []byte("Directory Transport Version: 1.1\n"), 0o644))
	ts.Check(os.WriteFile(filepath.Join(dir, "manifest.json"), made.ManifestBytes, 0o644))
	for _, b := range made.Blobs() {
		ts.Check(writeBlob(dir, b))
	}
}

func writeBlob(dir string, b nativeimage.Blob) error {
	in, err := b.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	content, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, strings.TrimPrefix(b.Digest, "sha256:")), content, 0o644)
}
