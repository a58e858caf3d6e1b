// Package signing makes keys, and signatures of container images, of the kinds
// that containers-policy.json(5) knows: simple signing with OpenPGP, and
// sigstore with a key, with certificates, and with Fulcio and Rekor. It stands
// in for GnuPG, cosign and their services in tests.
package signing

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// A PGPKey signs images the simple way.
type PGPKey struct {
	entity  *openpgp.Entity
	created time.Time
}

// NewPGPKey makes a key. Lifetime is how long it is valid; forever where zero.
func NewPGPKey(created time.Time, lifetime time.Duration) (*PGPKey, error) {
	config := &packet.Config{
		Time: func() time.Time { return created }, Algorithm: packet.PubKeyAlgoEdDSA,
		KeyLifetimeSecs: uint32(lifetime / time.Second),
	}
	entity, err := openpgp.NewEntity("tester", "", "tester@example.com", config)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	return &PGPKey{entity, created}, nil
}

// Public is the public key in binary form.
func (k *PGPKey) Public() ([]byte, error) {
	var b bytes.Buffer
	err := k.entity.Serialize(&b)
	return b.Bytes(), err
}

// ArmoredPublic is the public key as text.
func (k *PGPKey) ArmoredPublic() ([]byte, error) {
	public, err := k.Public()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w, err := armor.Encode(&b, openpgp.PublicKeyType, nil)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(public); err != nil {
		return nil, err
	}
	err = w.Close()
	b.WriteByte('\n')
	return b.Bytes(), err
}

// SimplePayload is what a simple signature signs: that the manifest with the
// digest is the image of that name.
func SimplePayload(digest, identity string) ([]byte, error) {
	return payload("atomic container signature", digest, identity)
}

func payload(kind, digest, identity string) ([]byte, error) {
	return json.Marshal(map[string]any{
		"critical": map[string]any{
			"type":     kind,
			"image":    map[string]any{"docker-manifest-digest": digest},
			"identity": map[string]any{"docker-reference": identity},
		},
		"optional": map[string]any{"creator": "a test"},
	})
}

// Sign makes a signature, an hour after the key was made.
func (k *PGPKey) Sign(digest, identity string) ([]byte, error) {
	text, err := SimplePayload(digest, identity)
	if err != nil {
		return nil, err
	}
	return k.SignText(text)
}

// SignText makes an OpenPGP message that holds a text and its signature.
func (k *PGPKey) SignText(text []byte) ([]byte, error) {
	var b bytes.Buffer
	config := &packet.Config{Time: func() time.Time { return k.created.Add(time.Hour) }}
	w, err := openpgp.Sign(&b, k.entity, nil, config)
	if err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	err = w.Close()
	return b.Bytes(), err
}

// Compress puts a message into a compressed packet, as GnuPG does.
func Compress(message []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := packet.SerializeCompressed(nopCloser{&b}, packet.CompressionZLIB, nil)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(message); err != nil {
		return nil, err
	}
	err = w.Close()
	return b.Bytes(), err
}

type nopCloser struct{ *bytes.Buffer }

func (nopCloser) Close() error { return nil }

// LookasideFile is where a manifest's signature lies in a lookaside: below the
// address that registries.d gives. Signatures count from 1.
func LookasideFile(repository, digest string, n int) string {
	return fmt.Sprintf("%s@%s/signature-%d", repository, strings.Replace(digest, ":", "=", 1), n)
}
