package cluster

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/oneboot/oneboot/pkg/api/v1alpha1"
	"github.com/oneboot/oneboot/pkg/forecast"
	"github.com/oneboot/oneboot/pkg/osimage"
)

// A failure is an image that could not be read, and when it is tried again.
type failure struct {
	tries int
	next  time.Time
}

const (
	firstRetry = 15 * time.Second
	lastRetry  = 30 * time.Minute
	// readTime bounds the reading of one image.
	readTime = 5 * time.Minute
)

// images keeps an OSImage for each wanted one, by digest. again is when the next one
// that failed is to be tried; 0 where none has.
func (c *Controller) images(ctx context.Context, want map[string][]string, versions []unstructured.Unstructured) (again time.Duration, all map[string]*v1alpha1.OSImage, err error) {
	again = c.addUpdates(ctx, want, versions)
	all = map[string]*v1alpha1.OSImage{}
	users := map[string][]string{}
	pullSpec := map[string]string{}
	for image, by := range want {
		digest := digestOf(image)
		users[digest] = append(users[digest], by...)
		if old, ok := pullSpec[digest]; !ok || image < old {
			pullSpec[digest] = image
		}
	}
	for digest, by := range users {
		slices.Sort(by)
		i, wait, err := c.image(ctx, pullSpec[digest], strings.Join(slices.Compact(by), ", "))
		if err != nil {
			return 0, nil, err
		}
		if wait > 0 && (again == 0 || wait < again) {
			again = wait
		}
		all[digest] = i
	}
	return again, all, c.unused(ctx, users)
}

// addUpdates adds the OS images of the updates that the cluster may take and of the
// named releases.
func (c *Controller) addUpdates(ctx context.Context, want map[string][]string, versions []unstructured.Unstructured) (again time.Duration) {
	releases := map[string]string{}
	for _, r := range c.Releases {
		releases[r] = "release " + r
	}
	for _, v := range versions {
		updates, _, _ := unstructured.NestedSlice(v.Object, "status", "availableUpdates")
		for _, u := range updates {
			m, _ := u.(map[string]any)
			image, _ := m["image"].(string)
			version, _ := m["version"].(string)
			if digestOf(image) != "" {
				releases[image] = "update " + version
			}
		}
	}
	for release, by := range releases {
		image, ok := c.releases[release]
		if !ok {
			wait, due := c.due(release)
			if due {
				refs, err := c.References(ctx, release)
				if wait = c.tried(release, err); err != nil {
					log.FromContext(ctx).Info("the release image could not be read", "release", release, "problem", err.Error())
				} else {
					image = osimage.OSComponent(refs)
					c.releases[release] = image
				}
			}
			if wait > 0 && (again == 0 || wait < again) {
				again = wait
			}
		}
		if digestOf(image) != "" {
			want[image] = append(want[image], by)
		}
	}
	return again
}

// due reports whether an image that failed may be tried again; wait is until then.
func (c *Controller) due(image string) (wait time.Duration, due bool) {
	f, failed := c.failures[image]
	if wait = time.Until(f.next); failed && wait > 0 {
		return wait, false
	}
	return 0, true
}

// tried takes note of how a try went; wait is until the next one.
func (c *Controller) tried(image string, err error) (wait time.Duration) {
	if err == nil {
		delete(c.failures, image)
		return 0
	}
	f := c.failures[image]
	wait = min(firstRetry<<min(f.tries, 8), lastRetry)
	c.failures[image] = failure{f.tries + 1, time.Now().Add(wait)}
	return wait
}

// image keeps one OSImage: made where it is not there, read where it was not yet.
func (c *Controller) image(ctx context.Context, image, usedBy string) (*v1alpha1.OSImage, time.Duration, error) {
	i := &v1alpha1.OSImage{}
	name := imageName(image)
	err := c.Manager.GetCache().Get(ctx, client.ObjectKey{Name: name}, i)
	if apierrors.IsNotFound(err) {
		i = &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.OSImageSpec{Image: image}}
		err = c.Manager.GetClient().Create(ctx, i, client.FieldOwner(FieldManager))
		if apierrors.IsAlreadyExists(err) {
			// The cache is behind.
			return nil, time.Second, nil
		}
	}
	if err != nil {
		return nil, 0, wrap("keeping OSImage", name, err)
	}
	before := i.DeepCopy()
	i.Status.UsedBy = usedBy
	var wait time.Duration
	if !meta.IsStatusConditionTrue(i.Status.Conditions, v1alpha1.ConditionRead) {
		var due bool
		if wait, due = c.due(image); due {
			wait = c.read(ctx, i)
		}
	}
	if equality.Semantic.DeepEqual(before.Status, i.Status) {
		return i, wait, nil
	}
	err = c.Manager.GetClient().Status().Patch(ctx, i, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(FieldManager))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return i, time.Second, nil
	}
	return i, wait, wrap("keeping the status of OSImage", name, err)
}

// read asks the registry and fills in the status.
func (c *Controller) read(ctx context.Context, i *v1alpha1.OSImage) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	found, err := c.Inspect(ctx, i.Spec.Image)
	wait := c.tried(i.Spec.Image, err)
	if err != nil {
		meta.SetStatusCondition(&i.Status.Conditions, condition(v1alpha1.ConditionRead, metav1.ConditionFalse, camel(string(osimage.CodeOf(err))), err.Error()))
		return wait
	}
	s := &i.Status
	value := func(name osimage.FactName) string { return found.Facts[name].Value }
	s.Digest, s.ConfigDigest, s.Architecture, s.List = string(found.Digest), string(found.ConfigDigest), found.Architecture, found.List
	s.Version, s.RHELVersion, s.Kernel, s.Glibc = value(osimage.FactOSVersion), value(osimage.FactRHELVersion), value(osimage.FactKernel), value(osimage.FactGlibc)
	if f := found.Facts[osimage.FactInnerCommit]; f.Source == osimage.SourceCommit && value(osimage.FactDerived) != "" {
		s.InnerCommit = f.Value
	}
	s.Layers, s.Bytes, s.DerivedLayers, s.DerivedBytes = int32(min(len(found.Layers), 1<<20)), found.Bytes, 0, 0
	for _, l := range found.Layers {
		if l.Derived {
			s.DerivedLayers++
			s.DerivedBytes += l.Bytes
		}
	}
	s.Facts = nil
	for _, name := range osimage.FactNames() {
		if f, ok := found.Facts[name]; ok {
			s.Facts = append(s.Facts, v1alpha1.Fact{Name: string(name), Value: f.Value, Source: string(f.Source), Absent: f.Absent, Unknown: f.Unknown[:min(len(f.Unknown), 2048)]})
		}
	}
	meta.SetStatusCondition(&s.Conditions, condition(v1alpha1.ConditionRead, metav1.ConditionTrue, "Read", "the image was read"))
	return 0
}

// unused takes the users off images that nobody wants any more. They stay: what was
// read once is not read again.
func (c *Controller) unused(ctx context.Context, users map[string][]string) error {
	l := &v1alpha1.OSImageList{}
	if err := c.Manager.GetCache().List(ctx, l); err != nil {
		return wrap("listing", "OSImages", err)
	}
	for n := range l.Items {
		i := &l.Items[n]
		if _, used := users[digestOf(i.Spec.Image)]; used || i.Status.UsedBy == "" {
			continue
		}
		before := i.DeepCopy()
		i.Status.UsedBy = ""
		if err := c.Manager.GetClient().Status().Patch(ctx, i, client.MergeFrom(before), client.FieldOwner(FieldManager)); client.IgnoreNotFound(err) != nil {
			return wrap("keeping the status of OSImage", i.Name, err)
		}
	}
	return nil
}

// imageOf is what a forecast needs of an image that was read; nil of one that was
// not.
func imageOf(i *v1alpha1.OSImage) *forecast.Image {
	if !meta.IsStatusConditionTrue(i.Status.Conditions, v1alpha1.ConditionRead) {
		return nil
	}
	s := i.Status
	return &forecast.Image{List: s.List, Bytes: s.Bytes, DerivedBytes: s.DerivedBytes, Layers: int(s.Layers), DerivedLayers: int(s.DerivedLayers), RHEL: s.RHELVersion,
		Content: forecast.Content{ManifestDigest: s.Digest, ConfigDigest: s.ConfigDigest, Commit: s.InnerCommit, Derived: s.DerivedLayers > 0, Kernel: s.Kernel}}
}

// digestOf is the digest that a pull spec pins; empty where it pins none.
func digestOf(pullSpec string) string {
	_, digest, _ := strings.Cut(pullSpec, "@")
	return digest
}

// imageName is an OSImage's name: by the digest, so that a mirror is the same one.
func imageName(image string) string { return strings.ReplaceAll(digestOf(image), ":", "-") }
