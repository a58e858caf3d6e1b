package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/oneboot/oneboot/pkg/bootimage"
)

func newStreamPrint() *cobra.Command {
	var flags streamFlags
	cmd := &cobra.Command{
		Use:   "print SOURCE",
		Short: "Print a stream document",
		Long: `Print a stream document as JSON, with all that is in it. Of several, --stream
chooses one: none is taken for another.`,
		Example: `  oneboot stream print REGISTRY/ocp-release:4.22.3-x86_64 --stream rhel-9
  oneboot stream print https://HOST/streams/stable.json

Installed as oc-oneboot beside oc (or kubectl-oneboot beside kubectl):

  oc oneboot stream print RELEASE
  oc get configmap coreos-bootimages -n openshift-machine-config-operator \
    -o yaml | oc oneboot stream print -`,
		Args: sourceArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := flags.one(cmd, args)
			if err != nil {
				return err
			}
			var b bytes.Buffer
			if err := json.Indent(&b, bytes.TrimSpace(s.Raw), "", "  "); err != nil {
				return failed(fmt.Errorf("writing stream: %w", err))
			}
			b.WriteByte('\n')
			_, err = b.WriteTo(cmd.OutOrStdout())
			return failed(err)
		},
	}
	flags.add(cmd)
	return cmd
}

func newStreamConvert() *cobra.Command {
	var flags streamFlags
	var arch string
	cmd := &cobra.Command{
		Use:   "convert SOURCE",
		Short: "Print a stream in the old form, rhcos.json",
		Long: `Print what a stream has for an architecture in the form that rhcos.json had up
to OpenShift 4.7. A stream does not say the OS's commit, its container and the
sizes of files: they are not in the output.`,
		Example: `  oneboot stream convert stream.json --arch x86_64`,
		Args:    sourceArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := flags.one(cmd, args)
			if err != nil {
				return err
			}
			old, err := s.OldForm(arch)
			if err != nil {
				return failed(err)
			}
			return failed(writeJSON(cmd.OutOrStdout(), old))
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVarP(&arch, "arch", "a", "", "for this architecture, `ARCH`: x86_64 or amd64, aarch64 or arm64, ppc64le, s390x")
	return cmd
}

func newStreamList() *cobra.Command {
	var flags streamFlags
	var arch, platform, output string
	cmd := &cobra.Command{
		Use:   "list SOURCE",
		Short: "List the architectures, platforms, formats and versions",
		Long: `List what disk images there are: files to download by their formats, and the
images that clouds have already as what they are there. With --platform each
region is a line of its own.

PLATFORM is OpenShift's name or the stream's:

` + platformTable() + `
On baremetal, installers since OpenShift 4.10 take the image from the release
itself; iso, pxe and raw are for installations by hand. none and external name
no kind of machine: metal is for real ones; on a cloud or a hypervisor choose
its own platform.`,
		Example: `  oneboot stream list stream.json
  oneboot stream list stream.json --platform aws --arch arm64`,
		Args: sourceArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return badOutput(output)
			}
			src, err := flags.read(cmd, args)
			if err != nil {
				return err
			}
			streams := src.Streams
			if flags.stream.set {
				s, err := flags.choose(src)
				if err != nil {
					return err
				}
				streams = []*bootimage.Stream{s}
			}
			offers, err := filterOffers(streams, arch, platform)
			if err != nil {
				return failed(err)
			}
			if output == "json" {
				return failed(writeJSON(cmd.OutOrStdout(), offers))
			}
			if note := bootimage.PlatformOf(platform).Note; note != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "note: %s: %s\n", platform, note)
			}
			return failed(printOffers(cmd.OutOrStdout(), offers, len(streams) > 1, platform != ""))
		},
	}
	flags.add(cmd)
	f := cmd.Flags()
	f.StringVarP(&arch, "arch", "a", "", "only this architecture, `ARCH`: x86_64 or amd64, aarch64 or arm64, ppc64le, s390x")
	f.StringVarP(&platform, "platform", "p", "", "only this `PLATFORM`")
	addOutputFlag(cmd, &output)
	return cmd
}

// platformTable lists OpenShift's names that are not the stream's own.
func platformTable() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, p := range bootimage.Platforms() {
		names := append([]string{p.Name}, p.Aliases...)
		if len(names) > 1 || p.Name != p.Artifact {
			fmt.Fprintf(w, "  %s\t%s\n", strings.Join(names, ", "), p.Artifact)
		}
	}
	// A strings.Builder takes everything.
	_ = w.Flush()
	return b.String()
}

// filterOffers leaves what was asked for; nothing left is an error that says
// what there is.
func filterOffers(streams []*bootimage.Stream, arch, platform string) ([]bootimage.Offer, error) {
	p := bootimage.PlatformOf(platform)
	offers := []bootimage.Offer{}
	var there []string
	for _, s := range streams {
		for _, o := range s.Offers() {
			there = append(there, clean(o.Architecture+" "+o.Platform))
			if arch != "" && o.Architecture != bootimage.Architecture(arch) {
				continue
			}
			if platform != "" && o.Platform != p.Artifact && o.Platform != p.Cloud {
				continue
			}
			offers = append(offers, o)
		}
	}
	if len(offers) == 0 && (arch != "" || platform != "") {
		slices.Sort(there)
		return nil, fmt.Errorf("there is nothing for %s here: there is %s", strings.TrimSpace(arch+" "+platform), strings.Join(slices.Compact(there), ", "))
	}
	return offers, nil
}

// printOffers writes a table. The images of a cloud with regions are counted, or
// each a line.
func printOffers(w io.Writer, offers []bootimage.Offer, streams, regions bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(stream string, cells ...string) {
		if streams {
			if stream == "" {
				stream = `""`
			}
			cells = append([]string{stream}, cells...)
		}
		for i := range cells {
			cells[i] = clean(cells[i])
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	row("STREAM", "ARCH", "PLATFORM", "VERSION", "WHAT")
	for _, o := range offers {
		for _, what := range whatOf(o, regions) {
			row(o.Stream, o.Architecture, o.Platform, o.Version, what)
		}
	}
	return t.Flush()
}

// whatOf says what an offer is, one line for each thing.
func whatOf(o bootimage.Offer, regions bool) []string {
	kind := map[string]string{
		bootimage.KindAMI: "AMI", bootimage.KindWindowsAMI: "AMI for Windows licenses", bootimage.KindImage: "image",
		bootimage.KindObject: "object", bootimage.KindContainerDisk: "container disk", bootimage.KindVHD: "VHD",
		bootimage.KindMarketplace: "marketplace",
	}[o.Kind]
	switch {
	case o.Kind == bootimage.KindFiles:
		return []string{"files: " + strings.Join(o.Formats, ", ")}
	case len(o.Images) > 1 && !regions && o.Kind == bootimage.KindMarketplace:
		return []string{fmt.Sprintf("%s: %d images", kind, len(o.Images))}
	case len(o.Images) > 1 && !regions:
		return []string{fmt.Sprintf("%s in %d regions", kind, len(o.Images))}
	}
	var lines []string
	for _, i := range o.Images {
		where := strings.TrimSpace(i.Region + " " + i.Plan)
		lines = append(lines, strings.TrimSpace(kind+" "+where)+": "+i.Image)
	}
	return lines
}

// writeJSON writes a document for a program.
func writeJSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s\n", b)
	return err
}
