package main

import (
	"reflect"
	"testing"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/bootimage"
	"github.com/oneboot/oneboot/pkg/record"
	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/fields"
)

// Every field of the JSON that the program writes is in its page.
func TestDocumentedFields(t *testing.T) {
	shared := map[reflect.Type]string{
		reflect.TypeFor[verdict.Package](): "PACKAGE",
		reflect.TypeFor[daemon.Change]():   "CHANGE",
		// These are in the table of the verdict.
		reflect.TypeFor[verdict.Verdict](): fields.Elsewhere,
		reflect.TypeFor[verdict.MCO]():     fields.Elsewhere,
		reflect.TypeFor[verdict.Check]():   fields.Elsewhere,
		reflect.TypeFor[verdict.Error]():   fields.Elsewhere,
	}
	for _, tt := range []struct {
		page, section string
		document      reflect.Type
	}{
		{"inspect.md", "JSON of inspect", reflect.TypeFor[daemon.ImageInspection]()},
		{"inspect.md", "JSON of diff", reflect.TypeFor[daemon.ImageDiff]()},
		{"inspect.md", "JSON of validate", reflect.TypeFor[daemon.Validation]()},
		{"plan.md", "JSON", reflect.TypeFor[daemon.Plan]()},
		{"streams.md", "JSON of list", reflect.TypeFor[[]bootimage.Offer]()},
		{"streams.md", "JSON of convert", reflect.TypeFor[bootimage.OldForm]()},
		{"streams.md", "JSON of download and mirror", reflect.TypeFor[[]fetchedFile]()},
		{"disk.md", "JSON", reflect.TypeFor[daemon.DiskReport]()},
		{"verdict.md", "The record", reflect.TypeFor[record.Record]()},
	} {
		t.Run(tt.page+" "+tt.section, func(t *testing.T) {
			fields.Check(t, "../../docs/"+tt.page, tt.section, "", tt.document, shared)
		})
	}
}
