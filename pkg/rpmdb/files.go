package rpmdb

import (
	"io"
	"io/fs"
	"time"
)

// fileName is what SQLite is told to open.
const fileName = "rpmdb.sqlite"

// A fileSystem holds the database and nothing beside it.
type fileSystem struct{ db *io.SectionReader }

// Open opens the database.
func (f *fileSystem) Open(name string) (fs.File, error) {
	if name != fileName {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &file{io.NewSectionReader(f.db, 0, f.db.Size())}, nil
}

// A file is the opened database; SQLite's reader wants a seeker.
type file struct{ *io.SectionReader }

// Stat returns the file itself: its name and size.
func (f *file) Stat() (fs.FileInfo, error) { return f, nil }

// Close does nothing: the file is the caller's.
func (f *file) Close() error { return nil }

// Name is the database's name.
func (f *file) Name() string { return fileName }

// Mode says that it is a regular file to be read.
func (f *file) Mode() fs.FileMode { return 0o444 }

// ModTime is not known.
func (f *file) ModTime() time.Time { return time.Time{} }

// IsDir is false.
func (f *file) IsDir() bool { return false }

// Sys is nothing.
func (f *file) Sys() any { return nil }
