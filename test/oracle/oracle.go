// Package oracle reads ostree repositories with libostree itself, for the test
// that the project's own reader agrees with it. It is a module of its own: it
// needs cgo and libostree's headers, which nothing else here does.
package oracle

/*
#cgo pkg-config: ostree-1
#include <stdlib.h>
#include <ostree.h>

static OstreeRepo *open_repo(const char *path, GError **error) {
	g_autoptr(GFile) file = g_file_new_for_path(path);
	g_autoptr(OstreeRepo) repo = ostree_repo_new(file);
	if (!ostree_repo_open(repo, NULL, error))
		return NULL;
	return g_steal_pointer(&repo);
}

// Lines of name, tab, checksum.
static char *list_refs(const char *path, GError **error) {
	g_autoptr(OstreeRepo) repo = open_repo(path, error);
	g_autoptr(GHashTable) refs = NULL;
	if (!repo || !ostree_repo_list_refs(repo, NULL, &refs, NULL, error))
		return NULL;
	GString *out = g_string_new("");
	GHashTableIter it;
	gpointer name, checksum;
	g_hash_table_iter_init(&it, refs);
	while (g_hash_table_iter_next(&it, &name, &checksum))
		g_string_append_printf(out, "%s\t%s\n", (char *)name, (char *)checksum);
	return g_string_free(out, FALSE);
}

// Lines of checksum for every commit object.
static char *list_commits(const char *path, GError **error) {
	g_autoptr(OstreeRepo) repo = open_repo(path, error);
	g_autoptr(GHashTable) objects = NULL;
	if (!repo || !ostree_repo_list_objects(repo, OSTREE_REPO_LIST_OBJECTS_ALL | OSTREE_REPO_LIST_OBJECTS_NO_PARENTS, &objects, NULL, error))
		return NULL;
	GString *out = g_string_new("");
	GHashTableIter it;
	gpointer key, value;
	g_hash_table_iter_init(&it, objects);
	while (g_hash_table_iter_next(&it, &key, &value)) {
		const char *checksum;
		OstreeObjectType type;
		ostree_object_name_deserialize(key, &checksum, &type);
		if (type == OSTREE_OBJECT_TYPE_COMMIT)
			g_string_append_printf(out, "%s\n", checksum);
	}
	return g_string_free(out, FALSE);
}

static void append_data(GString *out, GVariant *v) {
	g_autofree char *data = g_base64_encode(g_variant_get_data(v), g_variant_get_size(v));
	g_string_append(out, data);
}

// Lines: parent, content checksum, time; then for each metadata key in order
// base64 of the key, its type and base64 of its data.
static char *dump_commit(const char *path, const char *checksum, GError **error) {
	g_autoptr(OstreeRepo) repo = open_repo(path, error);
	g_autoptr(GVariant) commit = NULL;
	if (!repo || !ostree_repo_load_commit(repo, checksum, &commit, NULL, error))
		return NULL;
	GString *out = g_string_new("");
	g_autofree char *parent = ostree_commit_get_parent(commit);
	g_autofree char *content = ostree_commit_get_content_checksum(commit);
	g_string_append_printf(out, "%s\n%s\n%" G_GUINT64_FORMAT "\n", parent ? parent : "", content, ostree_commit_get_timestamp(commit));
	g_autoptr(GVariant) metadata = g_variant_get_child_value(commit, 0);
	GVariantIter it;
	const char *key;
	GVariant *value;
	g_variant_iter_init(&it, metadata);
	while (g_variant_iter_loop(&it, "{&sv}", &key, &value)) {
		g_autofree char *name = g_base64_encode((const guchar *)key, strlen(key));
		g_string_append_printf(out, "%s\t%s\t", name, g_variant_get_type_string(value));
		// A copy of its own: data of a child may not be aligned alone.
		append_data(out, value);
		g_string_append_c(out, '\n');
	}
	return g_string_free(out, FALSE);
}
*/
import "C"

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"unsafe"
)

// A Commit is what libostree reads of a commit and ostree-go does not show.
type Commit struct {
	Parent          string
	ContentChecksum string
	Timestamp       string
	Metadata        []Value
}

// A Value is a metadata key, its GVariant type and its serialized data.
type Value struct {
	Key, Type string
	Data      []byte
}

// Refs lists all refs of a repository, remote ones as REMOTE:NAME.
func Refs(repo string) (map[string]string, error) {
	lines, err := call(func(path *C.char, cerr **C.GError) *C.char { return C.list_refs(path, cerr) }, repo)
	if err != nil {
		return nil, err
	}
	refs := map[string]string{}
	for _, line := range lines {
		name, checksum, _ := strings.Cut(line, "\t")
		refs[name] = checksum
	}
	return refs, nil
}

// Commits lists the checksums of all commits of a repository.
func Commits(repo string) ([]string, error) {
	return call(func(path *C.char, cerr **C.GError) *C.char { return C.list_commits(path, cerr) }, repo)
}

// ReadCommit reads a commit.
func ReadCommit(repo, checksum string) (*Commit, error) {
	sum := C.CString(checksum)
	defer C.free(unsafe.Pointer(sum))
	lines, err := call(func(path *C.char, cerr **C.GError) *C.char { return C.dump_commit(path, sum, cerr) }, repo)
	if err != nil {
		return nil, err
	}
	if len(lines) < 3 {
		return nil, fmt.Errorf("reading commit: %d lines", len(lines))
	}
	c := &Commit{Parent: lines[0], ContentChecksum: lines[1], Timestamp: lines[2]}
	for _, line := range lines[3:] {
		f := strings.Split(line, "\t")
		if len(f) != 3 {
			return nil, fmt.Errorf("reading commit: line %q", line)
		}
		key, err := base64.StdEncoding.DecodeString(f[0])
		if err != nil {
			return nil, err
		}
		data, err := base64.StdEncoding.DecodeString(f[2])
		if err != nil {
			return nil, err
		}
		c.Metadata = append(c.Metadata, Value{string(key), f[1], data})
	}
	return c, nil
}

// call runs a C function that returns lines and splits them.
func call(f func(path *C.char, cerr **C.GError) *C.char, repo string) ([]string, error) {
	path := C.CString(repo)
	defer C.free(unsafe.Pointer(path))
	var cerr *C.GError
	out := f(path, &cerr)
	if out == nil {
		defer C.g_error_free(cerr)
		return nil, errors.New(C.GoString(cerr.message))
	}
	defer C.g_free(C.gpointer(out))
	text := C.GoString(out)
	if text == "" {
		return nil, nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n"), nil
}
