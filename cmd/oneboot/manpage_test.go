package main

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/oneboot/oneboot/cmd/internal/manpage/manpagetest"
)

func TestManPages(t *testing.T) {
	manpagetest.Check(t, func() *cobra.Command { return newRoot("oneboot") })
}
