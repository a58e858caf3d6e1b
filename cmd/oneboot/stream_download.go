package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/bootimage"
)

// downloader is that of --ca-file, with progress on a terminal.
func (s *streamFlags) downloader(stderr io.Writer, dir string, decompress bool) (*bootimage.Downloader, error) {
	var (
		cas []byte
		err error
	)
	if s.ca != "" {
		if cas, err = daemon.ReadCallersFile(s.ca); err != nil {
			return nil, failed(fmt.Errorf("--ca-file %w", err))
		}
	}
	client, err := bootimage.NewClient(cas)
	if err != nil {
		return nil, failed(err)
	}
	return &bootimage.Downloader{Client: client, Dir: dir, Decompress: decompress, Progress: downloadProgress(stderr)}, nil
}

// downloadProgress tells on a terminal how far a file is; nil where there is none.
func downloadProgress(w io.Writer) func(string, int64, int64) {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	if fi, err := f.Stat(); err != nil || fi.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	var (
		mu   sync.Mutex
		last time.Time
	)
	return func(name string, done, total int64) {
		mu.Lock()
		defer mu.Unlock()
		if done < total && time.Since(last) < 200*time.Millisecond {
			return
		}
		last = time.Now()
		text := fmt.Sprintf("%.1f MB", float64(done)/1e6)
		if total > 0 {
			text += fmt.Sprintf(" of %.1f MB, %d%%", float64(total)/1e6, done*100/total)
		}
		fmt.Fprintf(w, "\r\x1b[K%s: %s\r", clean(name), text)
		if done == total {
			fmt.Fprint(w, "\r\x1b[K")
		}
	}
}

func newStreamDownload() *cobra.Command {
	var (
		flags             streamFlags
		query             bootimage.Query
		dir, output       string
		decompress, print bool
	)
	cmd := &cobra.Command{
		Use:   "download --from SOURCE -p PLATFORM",
		Short: "Fetch a disk image, or the parts of a network boot, and verify it",
		Long: `Fetch the files of one platform and format and compare their SHA-256 with the
stream's. A file has its name only once it is right; one that was cut off goes
on where it stopped at the next call, and what is there and right is not
fetched again. PLATFORM is a name of the stream or of OpenShift, such as metal,
baremetal, none, vsphere or ovirt.

Exit status: 0 the files are there and right; 1 they are not; 2 wrong usage.`,
		Example: `  oneboot stream download --from stream.json -p metal -f iso -a x86_64
  oneboot stream download --from stream.json -p metal -f pxe --print-url`,
		Args: sourceArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return badOutput(output)
			}
			if query.Platform == "" {
				return errors.New("-p is missing: name a platform, such as metal")
			}
			st, err := flags.one(cmd, args)
			if err != nil {
				return err
			}
			set, err := st.Select(query)
			if err != nil {
				return failed(err)
			}
			if print {
				for _, p := range set.Parts {
					if _, err := fmt.Fprintln(cmd.OutOrStdout(), p.Location); err != nil {
						return failed(err)
					}
				}
				return nil
			}
			d, err := flags.downloader(cmd.ErrOrStderr(), dir, decompress)
			if err != nil {
				return err
			}
			files, err := d.GetAll(cmd.Context(), set.Parts)
			if err != nil {
				return failed(err)
			}
			return failed(printFiles(cmd.OutOrStdout(), output, files))
		},
	}
	flags.add(cmd)
	f := cmd.Flags()
	f.StringVarP(&query.Platform, "platform", "p", "", "files for `PLATFORM`")
	f.StringVarP(&query.Architecture, "arch", "a", "", "files for `ARCHITECTURE`, by RPM's or Go's name")
	f.StringVarP(&query.Format, "format", "f", "", "files of `FORMAT`, such as iso, pxe or raw")
	f.StringVar(&dir, "dir", ".", "write to `DIR`")
	f.BoolVar(&decompress, "decompress", false, "unpack what is compressed, and verify that too")
	f.BoolVar(&print, "print-url", false, "print the addresses and fetch nothing")
	addOutputFlag(cmd, &output)
	return cmd
}

// A fetchedFile is a file in the JSON output.
type fetchedFile struct {
	Role    string `json:"role"`
	Path    string `json:"path"`
	URL     string `json:"url"`
	SHA256  string `json:"sha256"`
	Fetched int64  `json:"fetchedBytes"`
}

func printFiles(w io.Writer, output string, files []bootimage.File) error {
	if output == "json" {
		out := []fetchedFile{}
		for _, f := range files {
			out = append(out, fetchedFile{f.Role, f.Path, f.Location, f.SHA256, f.Fetched})
		}
		b, err := json.MarshalIndent(out, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s\n", b)
		return err
	}
	for _, f := range files {
		if _, err := fmt.Fprintln(w, f.Path); err != nil {
			return err
		}
	}
	return nil
}

func newStreamMirror() *cobra.Command {
	var (
		flags                      streamFlags
		platforms, arches, formats []string
		to, base, version, output  string
	)
	cmd := &cobra.Command{
		Use:   "mirror --from SOURCE --to DIR --base-url URL -p NAME",
		Short: "Disk images for a site without a network",
		Long: `Fetch the files of the platforms, architectures and formats into DIR, which a
web server serves as URL, and write
  ` + bootimage.ConfigMapFile + `             the ConfigMap, with the mirror's addresses
  ` + bootimage.OSImagesFile + `  of live ISOs, for an AgentServiceConfig
What is there and right is not fetched again. All streams of SOURCE are
mirrored unless --stream names one.

Exit status: 0 all is there and right; 1 it is not; 2 wrong usage.`,
		Example: `  oneboot stream mirror --from bootimages.yaml --to /srv/rhcos -p metal -f iso \
    -a x86_64 --base-url https://mirror.example.com/rhcos`,
		Args: sourceArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			m := &bootimage.Mirror{To: to, BaseURL: base, OpenShiftVersion: version}
			switch {
			case output != "text" && output != "json":
				return badOutput(output)
			case to == "":
				return errors.New("--to is missing: name a folder")
			case len(platforms) == 0:
				return errors.New("-p is missing: name a platform, such as metal")
			}
			if err := m.Check(); err != nil {
				return fmt.Errorf("--base-url: %w", err)
			}
			src, err := flags.read(cmd, args)
			if err != nil {
				return err
			}
			streams := src.Streams
			if flags.stream.set {
				st, err := src.Stream(flags.stream.name)
				if err != nil {
					return failed(err)
				}
				streams = []*bootimage.Stream{st}
			}
			if m.Downloader, err = flags.downloader(cmd.ErrOrStderr(), to, false); err != nil {
				return err
			}
			got, err := m.Run(cmd.Context(), src, streams, queries(platforms, arches, formats))
			if err != nil {
				return failed(err)
			}
			if err := printFiles(cmd.OutOrStdout(), output, got.Files); err != nil || output == "json" {
				return failed(err)
			}
			for _, name := range []string{got.ConfigMap, got.OSImages} {
				if name != "" {
					if _, err := fmt.Fprintln(cmd.OutOrStdout(), name); err != nil {
						return failed(err)
					}
				}
			}
			return nil
		},
	}
	flags.add(cmd)
	f := cmd.Flags()
	f.StringArrayVarP(&platforms, "platform", "p", nil, "files for `PLATFORM` (repeatable)")
	f.StringArrayVarP(&arches, "arch", "a", nil, "files for `ARCHITECTURE` (repeatable)")
	f.StringArrayVarP(&formats, "format", "f", nil, "files of `FORMAT` (repeatable)")
	f.StringVar(&to, "to", "", "write to `DIR`")
	f.StringVar(&base, "base-url", "", "DIR is served as `URL`")
	f.StringVar(&version, "openshift-version", "", "the live ISOs are for OpenShift `VERSION`, such as 4.19; by the source if not given")
	addOutputFlag(cmd, &output)
	return cmd
}

// queries are all combinations.
func queries(platforms, arches, formats []string) []bootimage.Query {
	if len(arches) == 0 {
		arches = []string{""}
	}
	if len(formats) == 0 {
		formats = []string{""}
	}
	var all []bootimage.Query
	for _, p := range platforms {
		for _, a := range arches {
			for _, f := range formats {
				all = append(all, bootimage.Query{Platform: p, Architecture: a, Format: f})
			}
		}
	}
	return all
}
