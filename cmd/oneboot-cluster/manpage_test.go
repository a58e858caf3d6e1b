package main

import (
	"testing"

	"github.com/oneboot/oneboot/cmd/internal/manpage/manpagetest"
)

func TestManPages(t *testing.T) { manpagetest.Check(t, newRoot) }
