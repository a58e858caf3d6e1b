package registry

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"

	"github.com/oneboot/oneboot/test/nativeimage"
)

// Push stores an image in a repository, under its digest and the tags, and
// returns the digest.
func (r *Registry) Push(repository string, m *nativeimage.Image, tags ...string) (string, error) {
	for _, b := range m.Blobs() {
		if err := r.PutBlob(repository, b); err != nil {
			return "", fmt.Errorf("pushing blob %s: %w", b.Digest, err)
		}
	}
	return m.Digest, r.putManifests(repository, m.ManifestMediaType(), m.Digest, m.ManifestBytes, tags)
}

// PushList stores a list and all its instances, and returns the list's digest.
func (r *Registry) PushList(repository string, l *nativeimage.List, tags ...string) (string, error) {
	for _, i := range l.Instances {
		if _, err := r.Push(repository, i.Image); err != nil {
			return "", err
		}
	}
	return l.Digest, r.putManifests(repository, l.MediaType(), l.Digest, l.ManifestBytes, tags)
}

func (r *Registry) putManifests(repository, mediaType, digest string, manifest []byte, tags []string) error {
	for _, reference := range append([]string{digest}, tags...) {
		if err := r.PutManifest(repository, reference, mediaType, manifest); err != nil {
			return fmt.Errorf("pushing manifest %s: %w", reference, err)
		}
	}
	return nil
}

// PutBlob stores a blob.
func (r *Registry) PutBlob(repository string, b nativeimage.Blob) (err error) {
	answer := r.do(http.MethodHead, "/v2/"+repository+"/blobs/"+b.Digest, "", nil, 0)
	if answer.Code == http.StatusOK {
		return nil
	}
	answer = r.do(http.MethodPost, "/v2/"+repository+"/blobs/uploads/", "", nil, 0)
	if answer.Code != http.StatusAccepted {
		return answerError(answer)
	}
	where, err := url.Parse(answer.Header().Get("Location"))
	if err != nil {
		return err
	}
	query := where.Query()
	query.Set("digest", b.Digest)
	content, err := b.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	answer = r.do(http.MethodPut, where.Path+"?"+query.Encode(), "application/octet-stream", content, b.Size)
	if answer.Code != http.StatusCreated {
		return answerError(answer)
	}
	return nil
}

// PutManifest stores a manifest of any kind under a digest or a tag.
func (r *Registry) PutManifest(repository, reference, mediaType string, manifest []byte) error {
	answer := r.do(http.MethodPut, "/v2/"+repository+"/manifests/"+reference, mediaType, bytes.NewReader(manifest), int64(len(manifest)))
	if answer.Code != http.StatusCreated {
		return answerError(answer)
	}
	return nil
}

// do sends a request to the registry without a network in between.
func (r *Registry) do(method, target, contentType string, body io.Reader, size int64) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, "http://"+r.Host+target, body)
	req.ContentLength = size
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	answer := httptest.NewRecorder()
	r.app.ServeHTTP(answer, req)
	return answer
}

func answerError(answer *httptest.ResponseRecorder) error {
	return fmt.Errorf("status %d: %s", answer.Code, bytes.TrimSpace(answer.Body.Bytes()))
}
