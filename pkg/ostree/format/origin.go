package format

import "strings"

// Groups of the origin file. They are those of rpm-ostree's origin.rs and of
// libostree (OSTREE_ORIGIN_TRANSIENT_GROUP).
const (
	originGroup    = "origin"
	packagesGroup  = "packages"
	overridesGroup = "overrides"
	rpmOstreeGroup = "rpmostree"
	modulesGroup   = "modules"
	transientGroup = "libostree-transient"
)

// An Origin is a deployment's origin file: where the deployment came from and
// what rpm-ostree is to do to it. Nothing in it proves anything.
type Origin struct {
	// Refspec and BaseRefspec name an ostree ref, with or without a remote,
	// or a commit.
	Refspec, BaseRefspec string
	// ContainerImageReference is verbatim: see [ParseImageReference].
	ContainerImageReference string
	CustomURL               string
	CustomDescription       string
	OverrideCommit          string
	UnconfiguredState       string
	// Unlocked is "hotfix" or empty; the other states are not kept here.
	Unlocked string

	// Requested packages by name, and as SHA256:NEVRA the local ones.
	Requested                  []string
	RequestedLocal             []string
	RequestedLocalFileOverride []string

	OverrideRemove       []string
	OverrideReplaceLocal []string
	OverrideReplace      []string

	RegenerateInitramfs bool
	InitramfsArgs       []string
	InitramfsEtc        []string
	CLIWrap             bool

	// Modules are the values of every key of [modules].
	Modules []string
	Pinned  bool

	// Conflict says in words which two identities the origin names; it is
	// empty for a proper origin. rpm-ostree refuses an origin that has both a
	// refspec and a container image, even an empty one.
	Conflict string

	// Other holds the keys that this program does not know.
	Other []OriginKey
}

// An OriginKey is a key of an origin file with its value as it stands there.
type OriginKey struct{ Group, Key, Value string }

// ParseOrigin decodes an origin file. A known key whose value has the wrong
// form is an error.
func ParseOrigin(b []byte) (*Origin, error) {
	f, err := ParseKeyFile(b)
	if err != nil {
		return nil, err
	}
	o := &Origin{}
	texts, lists, bools := o.targets()
	for _, group := range f.Groups() {
		for _, key := range f.Keys(group) {
			id := groupKey{group, key}
			var err error
			switch {
			case texts[id] != nil:
				*texts[id], _, err = f.String(group, key)
			case lists[id] != nil:
				*lists[id], _, err = f.Strings(group, key)
			case bools[id] != nil:
				var v bool
				v, _, err = f.Bool(group, key)
				*bools[id] = *bools[id] || v
			case group == modulesGroup:
				var v []string
				v, _, err = f.Strings(group, key)
				o.Modules = append(o.Modules, v...)
			default:
				raw, _ := f.Raw(group, key)
				o.Other = append(o.Other, OriginKey{group, key, raw})
			}
			if err != nil {
				return nil, err
			}
		}
		if len(f.Keys(group)) == 0 && !knownGroup(group) {
			o.Other = append(o.Other, OriginKey{Group: group})
		}
	}
	o.Conflict = conflict(f)
	return o, nil
}

// targets maps each known key to its field.
func (o *Origin) targets() (map[groupKey]*string, map[groupKey]*[]string, map[groupKey]*bool) {
	texts := map[groupKey]*string{
		{originGroup, "refspec"}:                   &o.Refspec,
		{originGroup, "baserefspec"}:               &o.BaseRefspec,
		{originGroup, "container-image-reference"}: &o.ContainerImageReference,
		{originGroup, "custom-url"}:                &o.CustomURL,
		{originGroup, "custom-description"}:        &o.CustomDescription,
		{originGroup, "override-commit"}:           &o.OverrideCommit,
		{originGroup, "unconfigured-state"}:        &o.UnconfiguredState,
		{originGroup, "unlocked"}:                  &o.Unlocked,
	}
	lists := map[groupKey]*[]string{
		{packagesGroup, "requested"}:                    &o.Requested,
		{packagesGroup, "requested-local"}:              &o.RequestedLocal,
		{packagesGroup, "requested-local-fileoverride"}: &o.RequestedLocalFileOverride,
		{overridesGroup, "remove"}:                      &o.OverrideRemove,
		{overridesGroup, "replace-local"}:               &o.OverrideReplaceLocal,
		{overridesGroup, "replace"}:                     &o.OverrideReplace,
		{rpmOstreeGroup, "initramfs-args"}:              &o.InitramfsArgs,
		{rpmOstreeGroup, "initramfs-etc"}:               &o.InitramfsEtc,
	}
	bools := map[groupKey]*bool{
		{rpmOstreeGroup, "regenerate-initramfs"}: &o.RegenerateInitramfs,
		{rpmOstreeGroup, "ex-cliwrap"}:           &o.CLIWrap,
		{rpmOstreeGroup, "cliwrap"}:              &o.CLIWrap,
		{transientGroup, "pinned"}:               &o.Pinned,
	}
	return texts, lists, bools
}

func knownGroup(g string) bool {
	switch g {
	case originGroup, packagesGroup, overridesGroup, rpmOstreeGroup, modulesGroup, transientGroup:
		return true
	}
	return false
}

func conflict(f *KeyFile) string {
	var found []string
	for _, key := range []string{"refspec", "baserefspec", "container-image-reference"} {
		if v, ok := f.Raw(originGroup, key); ok {
			found = append(found, key+"="+v)
		}
	}
	if len(found) < 2 {
		return ""
	}
	return "[origin] " + strings.Join(found, " and ")
}
