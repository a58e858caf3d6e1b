// Package rpmdb lists the packages of an rpm database: one of rpm's sqlite
// backend (rpmdb.sqlite; EL9 and later), of its ndb backend (Packages.db; SUSE)
// or of Berkeley DB (Packages; up to EL8). It reads just the packages, and of each
// package's header just the name and version.
//
// A list is the whole list or an error.
package rpmdb

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// Bounds, far above any real database: that of a large OS image has 50 MB and
// 700 packages.
const (
	// MaxSize is the size in bytes of the largest database that is read.
	MaxSize = 256 << 20

	maxPackages   = 20000
	maxHeaderSize = 32 << 20
	maxSchema     = 1000
	maxSchemaSize = 64 << 10
)

// ErrNotDatabase is wrapped by the error about a file of none of these forms.
var ErrNotDatabase = errors.New("not an rpm database: neither sqlite nor ndb nor Berkeley DB")

// Looks reports whether a file that begins so, by 16 bytes, may be an rpm database.
func Looks(head []byte) bool {
	return strings.HasPrefix(string(head), magic) || strings.HasPrefix(string(head), ndbMagic) || berkeleyOrder(head) != nil
}

// List returns the installed packages in the order in which they are stored.
// Public keys, which rpm stores like packages (gpg-pubkey), are left out, as
// rpm-ostree's own lists have it. Size is that of the whole file in bytes. The
// caller makes sure that there is no write-ahead log or journal beside it with
// anything in it: the file alone would not be the database.
func List(db io.ReaderAt, size int64) ([]verdict.Package, error) {
	packages, err := list(db, size)
	if err != nil {
		return nil, fmt.Errorf("reading rpm database: %w", err)
	}
	return packages, nil
}

func list(db io.ReaderAt, size int64) ([]verdict.Package, error) {
	if size > MaxSize {
		return nil, fmt.Errorf("%d bytes, over the limit of %d", size, MaxSize)
	}
	head := make([]byte, hashMetaSize)
	n, err := db.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	head = head[:min(int64(n), size)]
	order := berkeleyOrder(head)
	switch {
	case strings.HasPrefix(string(head), magic):
		return listSQLite(db, size)
	case strings.HasPrefix(string(head), ndbMagic):
		return listNDB(db, size)
	case order != nil:
		return listBerkeley(db, size, order)
	}
	return nil, ErrNotDatabase
}

func listSQLite(db io.ReaderAt, size int64) ([]verdict.Package, error) {
	f, err := openFile(db, size)
	if err != nil {
		return nil, err
	}
	root, err := f.findTable()
	if err != nil {
		return nil, err
	}
	packages, rows := []verdict.Package{}, 0
	err = f.scan(root, maxHeaderSize, func(number int64, record []byte) error {
		if rows++; rows > maxPackages {
			return fmt.Errorf("more than %d packages", maxPackages)
		}
		p, err := parseRow(record)
		if err != nil {
			return fmt.Errorf("package %d: %w", number, err)
		}
		if p.Name != publicKey {
			packages = append(packages, p)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return packages, nil
}

// packagesTable is the definition of rpm's table without its blanks
// (sqlite.c in rpm's lib/backend). It has not changed since the backend came.
const packagesTable = "CREATETABLE'Packages'(hnumINTEGERPRIMARYKEYAUTOINCREMENT,blobBLOBNOTNULL)"

// findTable looks in the schema for rpm's own table and returns its root page.
// Any other kind of the name Packages, a view or a table with more columns, is
// an error.
func (f *file) findTable() (root uint32, err error) {
	rows := 0
	err = f.scan(1, maxSchemaSize, func(_ int64, record []byte) error {
		if rows++; rows > maxSchema {
			return fmt.Errorf("more than %d tables and indexes", maxSchema)
		}
		// type, name, tbl_name, rootpage, sql
		columns, err := parseRecord(record, 5)
		if err != nil {
			return err
		}
		if !strings.EqualFold(string(columns[1].text()), "Packages") {
			return nil
		}
		page := columns[3].integer()
		sql := strings.Join(strings.Fields(string(columns[4].text())), "")
		if string(columns[0].text()) != "table" || sql != packagesTable || page < 2 || page > int64(f.pages) || root != 0 {
			return errors.New("what is named Packages is not rpm's table")
		}
		root = uint32(page) //nolint:gosec // no larger than the number of pages
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("schema: %w", err)
	}
	if root == 0 {
		return 0, errors.New("no table Packages")
	}
	return root, nil
}

// parseRow reads a row of the table: the number, which SQLite stores as the
// row's own, and the header.
func parseRow(record []byte) (verdict.Package, error) {
	columns, err := parseRecord(record, 2)
	if err != nil {
		return verdict.Package{}, err
	}
	header, ok := columns[1].blob()
	if !ok {
		return verdict.Package{}, errors.New("the header is not a blob")
	}
	return parseHeader(header)
}
