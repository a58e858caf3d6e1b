package sysroot

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Status is what rpm-ostree status --json prints of a system that has booted
// the deployment, as far as commit and origin tell: the others follow it as
// they are listed. Change, if not nil, edits the booted one. The layout is that
// of rpm-ostree's src/daemon/rpmostreed-deployment-utils.cxx.
func (d Deployment) Status(change func(map[string]any)) (string, error) {
	all, err := d.sysroot.Deployments()
	if err != nil {
		return "", err
	}
	booted, err := d.status(true)
	if err != nil {
		return "", err
	}
	if change != nil {
		change(booted)
	}
	list := []any{booted}
	for _, o := range all {
		if o == d {
			continue
		}
		other, err := o.status(false)
		if err != nil {
			return "", err
		}
		list = append(list, other)
	}
	b, err := json.MarshalIndent(map[string]any{
		"deployments": list, "transaction": nil, "cached-update": nil, "update-driver": nil,
	}, "", "  ")
	return string(b) + "\n", err
}

func (d Deployment) status(booted bool) (map[string]any, error) {
	meta := map[string]string{}
	for _, key := range []string{"version", "ostree.linux", "coreos-assembler.basearch", "ostree.manifest-digest", "ostree.manifest", "ostree.container.image-config"} {
		if text, err := Ostree("show", "--repo="+d.sysroot.Repo(), "--print-metadata-key="+key, d.Checksum); err == nil {
			// A string as GVariant text, which escapes more than it needs to.
			if len(text) > 1 && (text[0] == '\'' || text[0] == '"') {
				text = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\'`, `'`).Replace(text[1 : len(text)-1])
			}
			meta[key] = text
		}
	}
	none := []string{}
	s := map[string]any{
		"id": fmt.Sprintf("%s-%s.%d", d.Stateroot, d.Checksum, d.Serial), "osname": d.Stateroot, "checksum": d.Checksum,
		"serial": d.Serial, "booted": booted, "staged": false, "pinned": false, "unlocked": "none",
		"base-commit-meta": meta, "version": meta["version"], "timestamp": DefaultTimestamp,
		"regenerate-initramfs": false, "packages": none, "base-removals": none, "base-local-replacements": none,
		"base-remote-replacements": map[string]any{}, "requested-packages": none, "requested-local-packages": none,
		"requested-local-fileoverride-packages": none, "requested-base-removals": none, "requested-base-local-replacements": none,
	}
	origin, err := os.ReadFile(d.OriginFile())
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(origin)) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), "="); key {
		case "container-image-reference":
			s[key], s[key+"-digest"] = value, meta["ostree.manifest-digest"]
		case "refspec", "baserefspec":
			s["origin"] = value
		case "custom-url":
			s["custom-origin"] = []string{value, "Managed by machine-config-operator"}
		}
	}
	return s, nil
}
