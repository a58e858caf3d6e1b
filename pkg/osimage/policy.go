package osimage

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/types"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/verdict"
)

const policyPath = "/etc/containers/policy.json"

// policyFile is policy.json, or why there is none.
type policyFile struct {
	// policy names private copies of the key files.
	policy *signature.Policy
	// keys says of a scope what is wrong with its keys.
	keys map[string]error
	err  *Error
}

// loadPolicy reads policy.json. A fault in it is kept for SignaturePolicy: it
// hides nothing else.
func (c *Config) loadPolicy(root *hostfs.Root) error {
	name := c.hostPath(policyPath)
	b, ok, err := readOptional(root, name, maxConfigFile)
	switch {
	case err != nil:
		c.policy.err = fail(PolicyInvalid, name, fmt.Errorf("reading: %w", bare(err)))
	case !ok:
		c.policy.err = failText(PolicyInvalid, name, "no such file: no image can be accepted without it")
	default:
		keys := keyCopier{
			nowhere: c.staged("/no-key"),
			read:    func(name string) ([]byte, error) { return root.ReadFile(c.belowRoot(name), maxConfigFile) },
			write: func(name string, b []byte) (string, error) {
				name = path.Join(keysDir, name)
				return c.staged(name), c.stage(name, b)
			},
		}
		c.policy.policy, c.policy.keys, err = keys.copyKeys(b)
		if err != nil {
			c.policy.err = fail(PolicyInvalid, name, fmt.Errorf("parsing%s: %w", jsonPosition(b, err), err))
		}
	}
	return nil
}

// SignaturePolicy returns what the host's policy.json asks of an image, by the
// scope rules of containers-policy.json(5). It uses no network: a requirement
// that needs a signature is only named, see [Image.VerifySignature]. A missing
// or malformed policy.json is an error, since then the host's own tools refuse
// every image; so is a key that the image's scope needs and that is missing or
// cannot be used.
func (c *Config) SignaturePolicy(ref string) (verdict.SignaturePolicy, error) {
	parsed, err := parseReference(ref)
	if err != nil {
		return verdict.SignaturePolicy{}, err
	}
	return c.signaturePolicy(parsed)
}

func (c *Config) signaturePolicy(parsed types.ImageReference) (verdict.SignaturePolicy, error) {
	if c.policy.err != nil {
		return verdict.SignaturePolicy{}, c.policy.err
	}
	scope, reqs := requirements(c.policy.policy, parsed)
	res := verdict.SignaturePolicy{Scope: scope}
	var kinds []string
	res.Requirement = verdict.SignatureNone
	for _, r := range reqs {
		kind, err := requirementType(r)
		if err != nil {
			return verdict.SignaturePolicy{}, fail(PolicyInvalid, c.hostPath(policyPath), fmt.Errorf("reading the requirements of scope %q: %w", scope, err))
		}
		kinds = append(kinds, kind)
		switch {
		case kind == "reject":
			res.Requirement = verdict.SignatureReject
		case kind != "insecureAcceptAnything" && res.Requirement == verdict.SignatureNone:
			res.Requirement = verdict.SignatureRequired
		}
	}
	if len(reqs) == 0 {
		// The library refuses an empty list when it evaluates one.
		res.Requirement = verdict.SignatureReject
	}
	if err := c.policy.keys[scope]; err != nil && res.Requirement == verdict.SignatureRequired {
		return verdict.SignaturePolicy{}, fail(PolicyInvalid, c.hostPath(policyPath), fmt.Errorf("scope %q: %w", scope, err))
	}
	res.Detail = fmt.Sprintf("%s: %s", c.hostPath(policyPath), strings.Join(kinds, ", "))
	return res, nil
}

// requirements finds the scope that applies, the most specific first:
// the image itself, its namespaces, the transport, the default.
func requirements(p *signature.Policy, ref types.ImageReference) (string, signature.PolicyRequirements) {
	transport := ref.Transport().Name()
	if scopes, ok := p.Transports[transport]; ok {
		names := append([]string{ref.PolicyConfigurationIdentity()}, ref.PolicyConfigurationNamespaces()...)
		for _, name := range append(names, "") {
			if reqs, ok := scopes[name]; ok {
				return scopeName(transport, name), reqs
			}
		}
	}
	return "default", p.Default
}

// scopeName is a scope as it stands in verdicts.
func scopeName(transport, name string) string {
	return strings.TrimSuffix(transport+":"+name, ":")
}

// requirementType returns a requirement's type, which the library shows only
// in its JSON form.
func requirementType(r signature.PolicyRequirement) (string, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("reading a requirement: %w", err)
	}
	var t struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(b, &t); err != nil {
		return "", fmt.Errorf("reading a requirement's type: %w", err)
	}
	if t.Type == "" {
		return "", fmt.Errorf("a requirement has no type")
	}
	return t.Type, nil
}
