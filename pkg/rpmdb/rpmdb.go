// Package rpmdb lists the packages of an rpm database: one of rpm's sqlite
// backend (rpmdb.sqlite; EL9 and later). The database is read in place, by
// SQLite itself through a file system that holds this one file and cannot
// write. The headers in it are read here.
//
// A list is the whole list or an error.
package rpmdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"modernc.org/sqlite"
	"modernc.org/sqlite/vfs"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// Bounds, far above any real database: that of a large OS image has 50 MB and
// 700 packages.
const (
	// MaxSize is the size in bytes of the largest database that is read.
	MaxSize = 256 << 20

	maxPackages   = 20000
	maxHeaderSize = 32 << 20
	maxColumns    = 16
	// maxHeap is in KiB. It holds for all SQLite connections of the process.
	maxHeap = 64 << 10
	// limitLength is SQLITE_LIMIT_LENGTH of sqlite3.h, the largest row;
	// limitSQL is SQLITE_LIMIT_SQL_LENGTH.
	limitLength = 0
	limitSQL    = 1
	maxSQL      = 64 << 10

	timeout = 10 * time.Second
)

// magic begins every SQLite 3 file (sqlite.org/fileformat2.html).
const magic = "SQLite format 3\x00"

// ErrNotSQLite is wrapped by the error about a file that is no SQLite
// database: rpm's older backends are not read.
var ErrNotSQLite = errors.New("not a sqlite database")

// List returns the installed packages in the order in which they are stored.
// Public keys, which rpm stores like packages (gpg-pubkey), are left out, as
// rpm-ostree's own lists have it. Size is that of the whole file in bytes. The
// journal beside a database is not the caller's to leave out: where there is
// one that is not empty, the file alone is not the database.
func List(db io.ReaderAt, size int64) (packages []verdict.Package, err error) {
	defer func() {
		if p := recover(); p != nil {
			packages, err = nil, fmt.Errorf("reading rpm database: the sqlite library failed: %v", p)
		}
	}()
	if size > MaxSize {
		return nil, fmt.Errorf("reading rpm database: %d bytes, over the limit of %d", size, MaxSize)
	}
	head := make([]byte, len(magic))
	if n, err := db.ReadAt(head, 0); n < len(head) && err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("reading rpm database: %w", err)
	}
	if string(head) != magic {
		return nil, fmt.Errorf("reading rpm database: %w", ErrNotSQLite)
	}
	packages, err = query(&fileSystem{io.NewSectionReader(db, 0, size)})
	if err != nil {
		return nil, fmt.Errorf("reading rpm database: %w", err)
	}
	return packages, nil
}

// query opens the database and reads its table of packages.
func query(files *fileSystem) (packages []verdict.Package, err error) {
	name, registered, err := vfs.New(files)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, registered.Close()) }()
	// Immutable: neither locks nor the journal of write-ahead logging, which
	// rpm uses, are looked for.
	db, err := sql.Open("sqlite", "file:"+fileName+"?mode=ro&immutable=1&vfs="+name+
		"&_pragma=hard_heap_limit("+strconv.Itoa(maxHeap<<10)+")&_pragma=trusted_schema(0)&_pragma=query_only(1)&_pragma=cell_size_check(1)")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	for id, limit := range map[int]int{limitLength: maxHeaderSize, limitSQL: maxSQL} {
		if _, err := sqlite.Limit(conn, id, limit); err != nil {
			return nil, err
		}
	}
	if err := checkTable(ctx, conn); err != nil {
		return nil, err
	}
	return readTable(ctx, conn, files.db.Size())
}

// checkTable wants Packages to be an ordinary table, so that no code in the
// database stands behind it: no view, virtual table or computed column.
func checkTable(ctx context.Context, conn *sql.Conn) error {
	var kind string
	var withoutRowID bool
	err := conn.QueryRowContext(ctx, "SELECT type, wr FROM pragma_table_list('Packages') WHERE schema = 'main'").Scan(&kind, &withoutRowID)
	if errors.Is(err, sql.ErrNoRows) {
		return errors.New("no table Packages")
	}
	if err != nil {
		return err
	}
	if kind != "table" || withoutRowID {
		return fmt.Errorf("Packages is not an ordinary table but a %s", kind)
	}
	rows, err := conn.QueryContext(ctx, "SELECT name, hidden FROM pragma_table_xinfo('Packages')")
	if err != nil {
		return err
	}
	defer rows.Close()
	found := map[string]bool{}
	for rows.Next() {
		var column string
		var hidden int
		if err := rows.Scan(&column, &hidden); err != nil {
			return err
		}
		if len(found) >= maxColumns || hidden != 0 {
			return errors.New("table Packages is not rpm's")
		}
		found[column] = true
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if !found["hnum"] || !found["blob"] {
		return errors.New("table Packages is not rpm's")
	}
	return nil
}

// readTable reads every row. In a sound file no two rows share bytes, so all
// of them together are no larger than the file.
func readTable(ctx context.Context, conn *sql.Conn, size int64) ([]verdict.Package, error) {
	rows, err := conn.QueryContext(ctx, "SELECT hnum, blob FROM Packages NOT INDEXED")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	packages := []verdict.Package{}
	last, count := int64(-1), 0
	for rows.Next() {
		var number int64
		var blob sql.RawBytes
		if err := rows.Scan(&number, &blob); err != nil {
			return nil, err
		}
		size -= int64(len(blob))
		if count++; count > maxPackages || size < 0 || number <= last {
			return nil, fmt.Errorf("package %d: too many packages, or the table is corrupt", number)
		}
		last = number
		p, err := parseHeader(blob)
		if err != nil {
			return nil, fmt.Errorf("package %d: %w", number, err)
		}
		if p.Name != publicKey {
			packages = append(packages, p)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return packages, nil
}
