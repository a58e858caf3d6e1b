package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/bootimage"
	"github.com/oneboot/oneboot/pkg/osimage"
	"github.com/oneboot/oneboot/pkg/payload"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// imageFlags say how images are read.
type imageFlags struct {
	root, auth, arch string
	full             bool
	time             time.Duration
}

func (f *imageFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.root, "root", "/", "registry configuration and credentials are below `DIR`")
	flags.StringVar(&f.auth, "authfile", "", "registry credentials from `FILE` instead of the host's")
	flags.StringVarP(&f.arch, "arch", "a", "", "look at the image for `ARCHITECTURE`, such as aarch64 or arm64; this machine's own if not given")
	flags.BoolVar(&f.full, "full", false, "also read what costs a layer or the whole image")
	flags.DurationVar(&f.time, "timeout", 5*time.Minute, "give up after this `TIME` (5s, 2m)")
}

func (f *imageFlags) check() error {
	if f.time <= 0 {
		return fmt.Errorf("--timeout: %s is not a time to wait", f.time)
	}
	return nil
}

func (f *imageFlags) options(image string, stderr io.Writer) daemon.InspectOptions {
	return daemon.InspectOptions{
		Image: image, Root: f.root, AuthFile: f.auth, Full: f.full, Progress: progress(stderr),
		Architecture: bootimage.GoArchitecture(f.arch),
	}
}

// progress tells on a terminal how much was read; nil where there is none.
func progress(w io.Writer) func(string, int64) {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	if fi, err := f.Stat(); err != nil || fi.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	began := time.Now()
	return func(image string, bytes int64) {
		if time.Since(began) > time.Second {
			fmt.Fprintf(w, "\r\x1b[K%.1f MB of %s\r", float64(bytes)/1e6, clean(image))
		}
	}
}

func newInspect() *cobra.Command {
	var (
		flags         imageFlags
		output, field string
	)
	cmd := &cobra.Command{
		Use:   "inspect IMAGE",
		Short: "An OS image's kernel, packages and extensions, without pulling it",
		Long: `What an OS image has, read from its labels and from parts of it: kernel, glibc,
RHEL version, extensions. IMAGE is an OS image, an extensions image, or a
release image, whose OS image, extensions image and driver-toolkit are looked
at. What cannot be told cheaply is unknown, with the reason; --full reads that
too.

Exit status: 0 the image was read; 1 it could not be, or the --field is not
known; 2 wrong usage.`,
		Example: `  oneboot inspect quay.io/openshift-release-dev/ocp-release:4.19.0-x86_64
  oneboot inspect -o json quay.io/fedora/fedora-coreos:stable
  oneboot inspect --field kernel quay.io/fedora/fedora-coreos:stable`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return badOutput(output)
			}
			if err := flags.check(); err != nil {
				return err
			}
			if field != "" && !slices.Contains(daemon.Fields(), field) {
				return fmt.Errorf("--field: %q is not known; the fields are %s", field, strings.Join(daemon.Fields(), ", "))
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), flags.time)
			defer cancel()
			d, err := daemon.Inspect(ctx, flags.options(args[0], cmd.ErrOrStderr()))
			if err != nil {
				return failed(err)
			}
			if field != "" {
				value, _, err := d.Field(field)
				if err != nil {
					return failed(err)
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), clean(value))
				return failed(err)
			}
			return failed(printInspection(cmd.OutOrStdout(), output, d))
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&field, "field", "", "print the value of `NAME` alone, such as kernel or glibc")
	addOutputFlag(cmd, &output)
	return cmd
}

func printInspection(w io.Writer, output string, d *daemon.ImageInspection) error {
	if output == "json" {
		b, err := json.MarshalIndent(d, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s\n", b)
		return err
	}
	var b strings.Builder
	if d.Release != "" {
		fmt.Fprintf(&b, "%-22s %s\n", "release", clean(d.Release))
	}
	if d.OS != nil {
		printOS(&b, d.OS)
	}
	printExtensions(&b, d.Extensions)
	if t := d.DriverToolkit; t != nil {
		text := clean(t.Kernel) + ", " + map[verdict.Outcome]string{
			verdict.OutcomeSame: "the OS image's", verdict.OutcomeDiffers: "NOT the OS image's", verdict.OutcomeUnknown: "whether it is the OS image's is unknown",
		}[t.SameKernel]
		if t.Kernel == "" {
			text = "unknown: " + clean(t.Unknown)
		}
		inspectRow(&b, "driver-toolkit kernel", text)
	}
	fmt.Fprintf(&b, "\n%d requests, %.1f kB read.\n", d.Requests, float64(d.Bytes)/1e3)
	_, err := io.WriteString(w, b.String())
	return err
}

// inspectRow is a line of the table; what does not fit is beneath it.
func inspectRow(b *strings.Builder, name, text string) {
	const indent = "                       "
	var wrapped strings.Builder
	writeWrapped(&wrapped, indent+text, indent)
	fmt.Fprintf(b, "%-22s %s", name, strings.TrimPrefix(wrapped.String(), indent))
}

func printOS(b *strings.Builder, i *osimage.Inspection) {
	inspectRow(b, "image", clean(i.Image))
	inspectRow(b, "digest", string(i.Digest))
	inspectRow(b, "architecture", clean(i.Architecture))
	unknown := map[string][]string{}
	for _, name := range osimage.FactNames() {
		f, ok := i.Facts[name]
		switch {
		case !ok || f.Absent && (name == osimage.FactKernelRT || name == osimage.FactKernel64K):
		case f.Absent:
			inspectRow(b, string(name), "not installed ("+string(f.Source)+")")
		case f.Value == "":
			unknown[f.Unknown] = append(unknown[f.Unknown], string(name))
		default:
			inspectRow(b, string(name), clean(f.Value)+" ("+string(f.Source)+")")
		}
	}
	inspectRow(b, "layers", fmt.Sprintf("%d, %.1f MB", len(i.Layers), float64(i.Bytes)/1e6))
	if i.Packages != nil {
		inspectRow(b, "packages", fmt.Sprintf("%d (%s)", len(i.Packages), i.PackagesSource))
	}
	for _, why := range slices.Sorted(maps.Keys(unknown)) {
		inspectRow(b, "unknown", strings.Join(unknown[why], ", ")+": "+clean(why))
	}
}

func printExtensions(b *strings.Builder, e payload.Extensions) {
	if e.Shipped == nil {
		inspectRow(b, "extensions", "unknown: "+clean(e.Unknown))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(e.Shipped)) {
		var versions []string
		for _, p := range e.Shipped[name] {
			versions = append(versions, clean(p.Name+"-"+p.EVRA))
		}
		if len(versions) == 0 {
			versions = []string{"(versions not read)"}
		}
		inspectRow(b, "extension "+clean(name), strings.Join(versions, " "))
	}
	if len(e.Missing) > 0 {
		inspectRow(b, "not shipped", strings.Join(e.Missing, ", "))
	}
}
