package manpage

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// Main writes a program's pages and completions to stdout, as a tar archive with
// the paths that they have below a prefix such as /usr. Their date is the time
// that SOURCE_DATE_EPOCH in the environment says, in seconds.
func Main(root *cobra.Command, edition string) error {
	epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("reading SOURCE_DATE_EPOCH: %w", err)
	}
	return Archive(os.Stdout, root, edition, time.Unix(epoch, 0).UTC())
}

// Archive writes what [Main] does. Equal input makes equal bytes.
func Archive(w io.Writer, root *cobra.Command, edition string, at time.Time) error {
	t := tar.NewWriter(w)
	add := func(name string, content []byte) error {
		head := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: at, Format: tar.FormatUSTAR}
		if err := t.WriteHeader(head); err != nil {
			return fmt.Errorf("adding %s: %w", name, err)
		}
		if _, err := t.Write(content); err != nil {
			return fmt.Errorf("adding %s: %w", name, err)
		}
		return nil
	}
	for _, p := range Pages(root, edition, at.Format(time.DateOnly)) {
		if err := add("share/man/man1/"+p.Name, []byte(p.Text)); err != nil {
			return err
		}
	}
	for _, shell := range []struct {
		path     string
		generate func(io.Writer) error
	}{
		{"share/bash-completion/completions/" + root.Name(), func(w io.Writer) error { return root.GenBashCompletionV2(w, true) }},
		{"share/zsh/site-functions/_" + root.Name(), root.GenZshCompletion},
		{"share/fish/vendor_completions.d/" + root.Name() + ".fish", func(w io.Writer) error { return root.GenFishCompletion(w, true) }},
	} {
		var script bytes.Buffer
		if err := shell.generate(&script); err != nil {
			return fmt.Errorf("completing %s: %w", shell.path, err)
		}
		if err := add(shell.path, script.Bytes()); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return fmt.Errorf("closing the archive: %w", err)
	}
	return nil
}
