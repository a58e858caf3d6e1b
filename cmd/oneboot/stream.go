package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/bootimage"
)

func newStream() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stream",
		Short: "The CoreOS disk images of a release: print, list, download, mirror",
		Long: `What CoreOS disk images a release of OpenShift or OKD, or a stream of Fedora
CoreOS, has. SOURCE is one of

  FILE         a stream document, or the ConfigMap coreos-bootimages, as JSON or
               YAML; - is stdin
  https://...  the same, from a web server
  IMAGE        a release image or an installer image in a registry, such as
               quay.io/openshift-release-dev/ocp-release:4.19.0-x86_64; one
               layer of it is read`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newStreamPrint(), newStreamList(), newStreamConvert(), newStreamDownload(), newStreamMirror())
	return cmd
}

// streamFlags say which stream is meant.
type streamFlags struct {
	from   string
	stream streamName
	root   string
	auth   string
	ca     string
	time   time.Duration
}

// A streamName is a flag whose empty value is one: OKD's stream has no name.
type streamName struct {
	name string
	set  bool
}

func (s *streamName) String() string { return s.name }
func (s *streamName) Type() string   { return "name" }

func (s *streamName) Set(name string) error {
	s.name, s.set = name, true
	return nil
}

func (s *streamFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.from, "from", "", "read `SOURCE`: a file, - for stdin, https://..., a release or installer image")
	f.Var(&s.stream, "stream", "the stream called `NAME`, such as rhel-9, where there are several; OKD's is \"\"")
	f.StringVar(&s.root, "root", "/", "registry configuration and credentials are below `DIR`")
	f.StringVar(&s.auth, "authfile", "", "registry credentials from `FILE` instead of the host's")
	f.StringVar(&s.ca, "ca-file", "", "trust the CAs in `FILE` (PEM) too, for https://...")
	f.DurationVar(&s.time, "timeout", 5*time.Minute, "give up on reading SOURCE after this `TIME` (5s, 2m)")
}

// source is the caller's SOURCE, as an argument or a flag.
func (s *streamFlags) source(args []string) (string, error) {
	switch {
	case len(args) > 0 && s.from != "":
		return "", errors.New("SOURCE is named twice, as an argument and by --from")
	case len(args) > 0:
		return args[0], nil
	case s.from == "":
		return "", errors.New("SOURCE is missing: name a file, - for stdin, https://..., a release or installer image")
	}
	return s.from, nil
}

// read reads SOURCE.
func (s *streamFlags) read(cmd *cobra.Command, args []string) (*bootimage.Source, error) {
	from, err := s.source(args)
	if err != nil {
		return nil, err
	}
	if from == "" {
		return nil, errors.New("SOURCE is empty")
	}
	if s.time <= 0 {
		return nil, fmt.Errorf("--timeout: %s is not a time to wait", s.time)
	}
	opts := daemon.StreamOptions{From: from, Root: s.root, AuthFile: s.auth}
	if s.ca != "" {
		if opts.CAs, err = daemon.ReadCallersFile(s.ca); err != nil {
			return nil, failed(fmt.Errorf("--ca-file %w", err))
		}
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), s.time)
	defer cancel()
	src, err := daemon.ReadStreams(ctx, opts, os.Stdin)
	return src, failed(err)
}

// one reads SOURCE and chooses one stream.
func (s *streamFlags) one(cmd *cobra.Command, args []string) (*bootimage.Stream, error) {
	src, err := s.read(cmd, args)
	if err != nil {
		return nil, err
	}
	return s.choose(src)
}

func (s *streamFlags) choose(src *bootimage.Source) (*bootimage.Stream, error) {
	if s.stream.set {
		st, err := src.Stream(s.stream.name)
		return st, failed(err)
	}
	st, err := src.Only()
	if err != nil {
		err = fmt.Errorf("--stream: %w", err)
	}
	return st, failed(err)
}

// sourceArgument takes SOURCE as an argument too.
func sourceArgument(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("one SOURCE at a time: %d are named", len(args))
	}
	return nil
}
