package sysroot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// RPMDatabasePath is where a [Tree] with packages has its rpm database, with
// an empty write-ahead log beside it.
const RPMDatabasePath = "usr/share/rpm/rpmdb.sqlite"

// rpmDatabaseFiles are the files of an rpm database in a tree.
func rpmDatabaseFiles(packages []Package) (map[string]File, error) {
	content, err := RPMDatabase(packages)
	return map[string]File{RPMDatabasePath: {Content: content}, RPMDatabasePath + "-wal": {}}, err
}

// RPMDatabase makes an rpm database that holds the packages, by rpm itself
// (rpmdb --importdb, sqlite backend), and returns the content of rpmdb.sqlite.
// It takes about 0.2 s for 500 packages. Equal lists make equal databases.
func RPMDatabase(packages []Package) (string, error) {
	dir, err := os.MkdirTemp("", "rpmdb-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	var headers bytes.Buffer
	for _, p := range packages {
		header, err := p.header()
		if err != nil {
			return "", fmt.Errorf("making the header of %s: %w", p.Name, err)
		}
		headers.Write(header)
	}
	for _, step := range []string{"--initdb", "--importdb"} {
		cmd := exec.Command("rpmdb", "--dbpath", dir, "--define", "_db_backend sqlite", step)
		cmd.Stdin = bytes.NewReader(headers.Bytes())
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("running rpmdb %s: %w: %s", step, err, strings.TrimSpace(string(out)))
		}
	}
	// rpm leaves the log behind, but nothing in it.
	if info, err := os.Stat(filepath.Join(dir, "rpmdb.sqlite-wal")); err == nil && info.Size() > 0 {
		return "", errors.New("rpmdb left changes in its write-ahead log")
	}
	content, err := os.ReadFile(filepath.Join(dir, "rpmdb.sqlite"))
	return string(content), err
}

// Tags and types of an rpm header, from rpm's rpmtag.h.
const (
	rpmTagI18NTable   = 100
	rpmTagName        = 1000
	rpmTagVersion     = 1001
	rpmTagRelease     = 1002
	rpmTagEpoch       = 1003
	rpmTagSummary     = 1004
	rpmTagDescription = 1005
	rpmTagLicense     = 1014
	rpmTagOS          = 1021
	rpmTagArch        = 1022
	rpmTagProvideName = 1047

	rpmInt32      = 4
	rpmString     = 6
	rpmTextArray  = 8
	rpmI18NString = 9
)

// header is the package's rpm header, as a package file has it: a magic, two
// lengths, the index sorted by tag and the data.
func (p Package) header() ([]byte, error) {
	var index, data []byte
	tags := uint32(0)
	add := func(tag, kind uint32, value []byte) {
		if kind == rpmInt32 {
			for len(data)%4 != 0 {
				data = append(data, 0)
			}
		}
		for _, n := range []uint32{tag, kind, uint32(len(data)), 1} {
			index = binary.BigEndian.AppendUint32(index, n)
		}
		data = append(data, value...)
		tags++
	}
	text := func(s string) []byte { return append([]byte(s), 0) }
	add(rpmTagI18NTable, rpmTextArray, text("C"))
	add(rpmTagName, rpmString, text(p.Name))
	add(rpmTagVersion, rpmString, text(p.Version))
	add(rpmTagRelease, rpmString, text(p.Release))
	if p.Epoch != "" && p.Epoch != "0" {
		epoch, err := strconv.ParseUint(p.Epoch, 10, 32)
		if err != nil {
			return nil, err
		}
		add(rpmTagEpoch, rpmInt32, binary.BigEndian.AppendUint32(nil, uint32(epoch)))
	}
	add(rpmTagSummary, rpmI18NString, text("The package "+p.Name))
	add(rpmTagDescription, rpmI18NString, text(strings.Repeat("A package for tests. ", p.Weight/20)))
	add(rpmTagLicense, rpmString, text("MIT"))
	add(rpmTagOS, rpmString, text("linux"))
	if p.Arch != "" {
		add(rpmTagArch, rpmString, text(p.Arch))
	}
	add(rpmTagProvideName, rpmTextArray, text(p.Name))

	header := []byte{0x8e, 0xad, 0xe8, 1, 0, 0, 0, 0}
	header = binary.BigEndian.AppendUint32(header, tags)
	header = binary.BigEndian.AppendUint32(header, uint32(len(data)))
	return append(append(header, index...), data...), nil
}
