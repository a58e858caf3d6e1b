package osimage

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"go.podman.io/image/v5/signature"
)

const (
	// keysDir holds the copies of keys, apart from those of the configuration.
	keysDir     = "/keys"
	maxKeyFiles = 100
)

// keyCopier makes copies of the keys that policy.json names.
type keyCopier struct {
	// read returns a file of the host.
	read func(name string) ([]byte, error)
	// write makes a copy and returns its path.
	write func(name string, b []byte) (string, error)
	// nowhere is the path of a file that is not there.
	nowhere string
	files   int
}

// copyKeys returns a policy whose key files are private copies, and for each
// scope, as [requirements] names it, what is wrong with its keys. The host's
// tools notice that only when an image of that scope is asked for, too.
func (k *keyCopier) copyKeys(b []byte) (*signature.Policy, map[string]error, error) {
	// This one is strict: keys of objects are neither unknown nor twice there.
	if _, err := signature.NewPolicyFromBytes(b); err != nil {
		return nil, nil, err
	}
	var doc struct {
		Default    []map[string]any                       `json:"default"`
		Transports map[string]map[string][]map[string]any `json:"transports,omitempty"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, nil, err
	}
	wrong := map[string]error{}
	k.scope("default", doc.Default, wrong)
	for _, transport := range slices.Sorted(maps.Keys(doc.Transports)) {
		scopes := doc.Transports[transport]
		for _, name := range slices.Sorted(maps.Keys(scopes)) {
			k.scope(scopeName(transport, name), scopes[name], wrong)
		}
	}
	b, err := json.Marshal(doc)
	if err != nil {
		return nil, nil, err
	}
	policy, err := signature.NewPolicyFromBytes(b)
	return policy, wrong, err
}

func (k *keyCopier) scope(scope string, reqs []map[string]any, wrong map[string]error) {
	for _, req := range reqs {
		kind, _ := req["type"].(string)
		if kind == "signedBy" && req["keyType"] != string(signature.SBKeyTypeGPGKeys) {
			continue // the library refuses every image, whatever the keys
		}
		if err := k.fields(kind, req); err != nil && wrong[scope] == nil {
			wrong[scope] = err
		}
	}
}

// fields replaces the fields of an object that hold keys or name files of them:
// keyPath, keyPaths, keyData, keyDatas and others that end so.
func (k *keyCopier) fields(kind string, object map[string]any) error {
	for _, field := range slices.Sorted(maps.Keys(object)) {
		var err error
		switch v := object[field].(type) {
		case map[string]any:
			err = k.fields(kind, v)
		case string:
			object[field], err = k.field(kind, field, v)
		case []any:
			for i, e := range v {
				if s, ok := e.(string); ok && err == nil {
					v[i], err = k.field(kind, strings.TrimSuffix(field, "s"), s)
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (k *keyCopier) field(kind, field, v string) (string, error) {
	if stem, ok := strings.CutSuffix(field, "Path"); ok {
		return k.file(kind, stem, field, v)
	}
	stem, ok := strings.CutSuffix(field, "Data")
	if !ok {
		return v, nil
	}
	b, err := base64.StdEncoding.DecodeString(v)
	if err == nil {
		b, err = checkKey(kind, stem, b)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", field, err)
	}
	return base64.StdEncoding.EncodeToString(b), nil
}

// file copies a key file. The path of one that cannot be used leads nowhere: it
// would be one of the system that this runs on.
func (k *keyCopier) file(kind, stem, field, name string) (string, error) {
	if !path.IsAbs(name) {
		return k.nowhere, fmt.Errorf("%s: %q is not an absolute path", field, name)
	}
	if k.files++; k.files > maxKeyFiles {
		return k.nowhere, fmt.Errorf("%s: %s: more than %d key files", field, name, maxKeyFiles)
	}
	b, err := k.read(name)
	if err == nil {
		b, err = checkKey(kind, stem, b)
	}
	if err != nil {
		return k.nowhere, fmt.Errorf("%s: %s: %w", field, name, bare(err))
	}
	return k.write(name, b)
}

// checkKey refuses what the library would stumble over only with a signature
// in its hands. It returns the key in a form that the library understands.
func checkKey(kind, stem string, b []byte) ([]byte, error) {
	switch {
	case kind == "signedBy" && stem == "key":
		return checkKeyring(b)
	case kind == "sigstoreSigned" && (stem == "key" || stem == "rekorPublicKey"):
		key, err := cryptoutils.UnmarshalPEMToPublicKey(b)
		if err != nil {
			return nil, fmt.Errorf("no public key: %w", err)
		}
		if _, ok := key.(*ecdsa.PublicKey); !ok && stem == "rekorPublicKey" {
			return nil, errors.New("not an ECDSA key")
		}
		return b, nil
	case kind == "sigstoreSigned" && (stem == "ca" || stem == "caRoots" || stem == "caIntermediates"):
		certs, err := cryptoutils.UnmarshalCertificatesFromPEM(b)
		if err != nil {
			return nil, fmt.Errorf("no certificate: %w", err)
		}
		if len(certs) == 0 {
			return nil, errors.New("holds no certificate")
		}
		return b, nil
	}
	return nil, errors.New("oneboot does not know what such a key is for")
}

// checkKeyring removes the armor from a keyring. GnuPG reads every armored
// block of a file, and Red Hat's key files have several; the library that
// stands in for it here would read the first one only.
func checkKeyring(b []byte) ([]byte, error) {
	if bytes.Contains(b, []byte("-----BEGIN PGP ")) {
		var err error
		if b, err = removeArmor(b); err != nil {
			return nil, fmt.Errorf("no keyring: %w", err)
		}
	}
	mech, keys, err := signature.NewEphemeralGPGSigningMechanism(b)
	if err != nil {
		return nil, fmt.Errorf("no keyring: %w", err)
	}
	if err := mech.Close(); err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, errors.New("holds no key")
	}
	return b, nil
}

func removeArmor(b []byte) ([]byte, error) {
	// The decoder goes on where it stopped in a reader of this type alone.
	r := bufio.NewReader(bytes.NewReader(b))
	var all []byte
	for {
		block, err := armor.Decode(r)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if block.Type != openpgp.PublicKeyType {
			return nil, fmt.Errorf("%q where a public key was expected", block.Type)
		}
		part, err := io.ReadAll(block.Body)
		if err != nil {
			return nil, err
		}
		all = append(all, part...)
	}
}
