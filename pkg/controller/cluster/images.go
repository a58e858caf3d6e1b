package cluster

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/oneboot/oneboot/pkg/api/v1alpha1"
	"github.com/oneboot/oneboot/pkg/forecast"
	"github.com/oneboot/oneboot/pkg/osimage"
	"github.com/oneboot/oneboot/pkg/payload"
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
	readTime = time.Minute
	// lookTime is how long one look goes on to the next image.
	lookTime = 2 * time.Second
)

// images keeps an OSImage for each wanted one, by digest. again is when the next one
// that failed is to be tried; 0 where none has.
func (c *Controller) images(ctx context.Context, all wants) (again time.Duration, kept map[string]*v1alpha1.OSImage, err error) {
	kept = map[string]*v1alpha1.OSImage{}
	for digest, w := range all {
		i, wait, err := c.image(ctx, w)
		if err != nil {
			return 0, nil, err
		}
		again = sooner(again, wait)
		kept[digest] = i
	}
	return again, kept, c.unused(ctx, all)
}

// due reports whether an image may be read now; wait is until one that failed may be
// tried again. One look reads for a short time only, after the forecasts, so that a
// registry that does not answer keeps nobody from what is known.
func (c *Controller) due(image string) (wait time.Duration, due bool) {
	if !time.Now().Before(c.readUntil) {
		return between, false
	}
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
func (c *Controller) image(ctx context.Context, w *want) (*v1alpha1.OSImage, time.Duration, error) {
	i := &v1alpha1.OSImage{}
	name := imageName(w.os)
	err := c.Manager.GetCache().Get(ctx, client.ObjectKey{Name: name}, i)
	if apierrors.IsNotFound(err) {
		i = &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.OSImageSpec{Image: w.os}}
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
	i.Status.UsedBy = strings.Join(sorted(w.users), ", ")
	i.Status.Releases = sorted(append(i.Status.Releases, w.releases...))
	var wait time.Duration
	if !meta.IsStatusConditionTrue(i.Status.Conditions, v1alpha1.ConditionRead) {
		var due bool
		if wait, due = c.due(w.os); due {
			wait = c.read(ctx, i)
		}
	}
	if meta.IsStatusConditionTrue(i.Status.Conditions, v1alpha1.ConditionRead) {
		wait = sooner(wait, sooner(c.extensions(ctx, i, w.extensions), c.toolkit(ctx, i, w.toolkit)))
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

// extensions reads what can be layered, unless the OS image itself has said so or
// nothing names an image of them.
func (c *Controller) extensions(ctx context.Context, i *v1alpha1.OSImage, named string) time.Duration {
	e := i.Status.Extensions
	if named == "" || e != nil && e.Read {
		return 0
	}
	wait, due := c.due(named)
	if !due {
		return wait
	}
	found, err := c.Registry.inspect(ctx, named, true)
	wait = c.tried(named, err)
	switch {
	case err != nil:
		i.Status.Extensions = &v1alpha1.Extensions{Image: named, Unknown: upTo(err.Error(), longestUnknown)}
	case found.Offer == nil:
		i.Status.Extensions = &v1alpha1.Extensions{Image: named, Read: true, Unknown: "the image says nothing of what can be layered"}
	default:
		i.Status.Extensions = offered(payload.ExtensionsOf(found), named)
	}
	return wait
}

// offered is an offer in the API's form.
func offered(x payload.Extensions, image string) *v1alpha1.Extensions {
	e := &v1alpha1.Extensions{Image: image, Read: true, Missing: x.Missing, Unknown: upTo(x.Unknown, longestUnknown)}
	for _, name := range slices.Sorted(maps.Keys(x.Shipped)) {
		ext := v1alpha1.Extension{Name: name}
		for _, p := range x.Shipped[name] {
			ext.Packages = append(ext.Packages, p.Name+"-"+p.EVRA)
		}
		e.Shipped = append(e.Shipped, ext)
	}
	return e
}

// toolkit reads the driver-toolkit's kernel.
func (c *Controller) toolkit(ctx context.Context, i *v1alpha1.OSImage, named string) time.Duration {
	t := i.Status.DriverToolkit
	if named == "" || t != nil && t.Read {
		return 0
	}
	wait, due := c.due(named)
	if !due {
		return wait
	}
	kernel, err := c.Registry.toolkitKernel(ctx, named)
	wait = c.tried(named, err)
	v := payload.CompareToolkit(named, kernel, err, i.Status.Kernel)
	i.Status.DriverToolkit = &v1alpha1.DriverToolkit{Image: named, Read: err == nil, Kernel: v.Kernel, SameKernel: v.SameKernel.String(), Unknown: upTo(v.Unknown, longestUnknown)}
	return wait
}

// longestUnknown bounds a text that says why something is not known, in bytes.
const longestUnknown = 2048

// upTo cuts a text.
func upTo(s string, longest int) string { return strings.ToValidUTF8(s[:min(len(s), longest)], "") }

// read asks the registry and fills in the status.
func (c *Controller) read(ctx context.Context, i *v1alpha1.OSImage) time.Duration {
	found, err := c.Registry.inspect(ctx, i.Spec.Image, false)
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
			s.Facts = append(s.Facts, v1alpha1.Fact{Name: string(name), Value: f.Value, Source: string(f.Source), Absent: f.Absent, Unknown: upTo(f.Unknown, longestUnknown)})
		}
	}
	if found.Offer != nil {
		s.Extensions = offered(payload.ExtensionsOf(found), i.Spec.Image)
	}
	meta.SetStatusCondition(&s.Conditions, condition(v1alpha1.ConditionRead, metav1.ConditionTrue, "Read", "the image was read"))
	return 0
}

// unused takes the users off images that nobody wants any more. They stay: what was
// read once is not read again.
func (c *Controller) unused(ctx context.Context, all wants) error {
	l := &v1alpha1.OSImageList{}
	if err := c.Manager.GetCache().List(ctx, l); err != nil {
		return wrap("listing", "OSImages", err)
	}
	for n := range l.Items {
		i := &l.Items[n]
		if _, used := all[digestOf(i.Spec.Image)]; used || i.Status.UsedBy == "" {
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
	return &forecast.Image{List: s.List, Architecture: s.Architecture, Bytes: s.Bytes, DerivedBytes: s.DerivedBytes, Layers: int(s.Layers), DerivedLayers: int(s.DerivedLayers), RHEL: s.RHELVersion,
		Content: forecast.Content{ManifestDigest: s.Digest, ConfigDigest: s.ConfigDigest, Commit: s.InnerCommit, Derived: s.DerivedLayers > 0, Kernel: s.Kernel}}
}

// digestOf is the digest that a pull spec pins; empty where it pins none.
func digestOf(pullSpec string) string {
	_, digest, _ := strings.Cut(pullSpec, "@")
	return digest
}

// imageName is an OSImage's name: by the digest, so that a mirror is the same one.
func imageName(image string) string { return strings.ReplaceAll(digestOf(image), ":", "-") }
