package signing

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"time"
)

// MediaType is that of a sigstore signature attached to an image.
const MediaType = "application/vnd.dev.cosign.simplesigning.v1+json"

// Annotations of an attached signature, as cosign writes them.
const (
	annotationSignature   = "dev.cosignproject.cosign/signature"
	annotationCertificate = "dev.sigstore.cosign/certificate"
	annotationBundle      = "dev.sigstore.cosign/bundle"
)

// An Attachment is a sigstore signature, to be stored as a layer of the image
// manifest with the tag sha256-<digest>.sig.
type Attachment struct {
	Payload     []byte
	Annotations map[string]string
}

// A Key signs images the sigstore way.
type Key struct {
	key *ecdsa.PrivateKey
}

// NewKey makes a key.
func NewKey() (*Key, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	return &Key{key}, nil
}

// PublicPEM is the public key.
func (k *Key) PublicPEM() ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(&k.key.PublicKey)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), err
}

// Sign makes a signature that says that the manifest with the digest is the
// image of that name.
func (k *Key) Sign(digest, identity string) (Attachment, error) {
	text, err := payload("cosign container image signature", digest, identity)
	if err != nil {
		return Attachment{}, err
	}
	sig, err := k.signBytes(text)
	return Attachment{text, map[string]string{annotationSignature: base64.StdEncoding.EncodeToString(sig)}}, err
}

func (k *Key) signBytes(b []byte) ([]byte, error) {
	sum := sha256.Sum256(b)
	return ecdsa.SignASN1(rand.Reader, k.key, sum[:])
}

// An Authority certifies keys.
type Authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// NewAuthority makes an authority with a certificate of its own.
func NewAuthority() (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	return &Authority{key, cert}, err
}

// PEM is the authority's certificate.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// Certify adds a certificate for the signer's key and email address to a
// signature. Issuer is the OIDC issuer that Fulcio would have asked.
func (a *Authority) Certify(att Attachment, signer *Key, email, issuer string) (Attachment, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		EmailAddresses: []string{email}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
		// Fulcio's first extension for the issuer.
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 1}, Value: []byte(issuer)}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &signer.key.PublicKey, a.key)
	if err != nil {
		return Attachment{}, fmt.Errorf("making a certificate: %w", err)
	}
	return att.with(annotationCertificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), nil
}

func (att Attachment) with(annotation string, value []byte) Attachment {
	att.Annotations = maps.Clone(att.Annotations)
	att.Annotations[annotation] = string(value)
	return att
}

// Log adds the promise of a Rekor server, which has the key rekor, that it has
// recorded the signature. Its certificate must have been added before, or
// public is the signer's key.
func (k *Key) Log(att Attachment, public []byte) (Attachment, error) {
	if cert := att.Annotations[annotationCertificate]; cert != "" {
		public = []byte(cert)
	}
	sum := sha256.Sum256(att.Payload)
	record, err := json.Marshal(map[string]any{
		"apiVersion": "0.0.1", "kind": "hashedrekord",
		"spec": map[string]any{
			"data": map[string]any{"hash": map[string]any{"algorithm": "sha256", "value": hex.EncodeToString(sum[:])}},
			"signature": map[string]any{
				"content":   att.Annotations[annotationSignature],
				"publicKey": map[string]any{"content": public},
			},
		},
	})
	if err != nil {
		return Attachment{}, err
	}
	// Sorted keys and no characters to escape: this is the canonical form.
	entry, err := json.Marshal(map[string]any{"body": record, "integratedTime": time.Now().Unix(), "logIndex": 1, "logID": "test"})
	if err != nil {
		return Attachment{}, err
	}
	promise, err := k.signBytes(entry)
	if err != nil {
		return Attachment{}, err
	}
	bundle, err := json.Marshal(map[string]any{"SignedEntryTimestamp": promise, "Payload": json.RawMessage(entry)})
	return att.with(annotationBundle, bundle), err
}
