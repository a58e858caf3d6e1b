package cluster

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/oneboot/oneboot/pkg/api/v1alpha1"
	"github.com/oneboot/oneboot/pkg/forecast"
)

// An image is an OS image that something in the cluster names, with the images that
// belong to it; those are empty where nothing names them.
type image struct {
	os, extensions, toolkit string
	// release is the release image that names them all.
	release string
}

// A want is what is known of an OS image before it is read.
type want struct {
	image
	users, releases []string
}

// wants are by the OS image's digest, so that a mirror is the same one.
type wants map[string]*want

// add takes note of somebody who wants an image; nothing else is pinned by digest.
func (w wants) add(i image, user string) {
	digest := digestOf(i.os)
	if digest == "" {
		return
	}
	have, ok := w[digest]
	if !ok {
		have = &want{}
		w[digest] = have
	}
	// Of several names the first one, so that it is always the same.
	have.os, have.extensions, have.toolkit = first(have.os, i.os), first(have.extensions, i.extensions), first(have.toolkit, i.toolkit)
	if user != "" {
		have.users = append(have.users, user)
	}
	if i.release != "" {
		have.releases = append(have.releases, i.release)
	}
}

// first is the one that sorts first of those that are not empty.
func first(a, b string) string {
	if a == "" || b != "" && b < a {
		return b
	}
	return a
}

// wanted are the images that pools and image streams name.
func wanted(targets map[string]*forecast.Target, streams []unstructured.Unstructured) wants {
	all := wants{}
	for pool, t := range targets {
		all.add(image{os: t.OSImage, extensions: t.ExtensionsImage}, "pool "+pool)
	}
	for _, s := range streams {
		available, _, _ := unstructured.NestedSlice(s.Object, "status", "availableStreams")
		for _, a := range available {
			m, _ := a.(map[string]any)
			name, _ := m["name"].(string)
			os, _ := m["osImage"].(string)
			extensions, _ := m["osExtensionsImage"].(string)
			all.add(image{os: os, extensions: extensions}, "stream "+name)
		}
	}
	return all
}

// addReleases adds what the cluster's own release, the updates that it may take and the
// named releases name. again is when a release image that could not be read is to be
// tried again.
func (c *Controller) addReleases(ctx context.Context, want wants, versions []unstructured.Unstructured) (again time.Duration, err error) {
	if len(c.releases) == 0 {
		if err := c.rememberReleases(ctx); err != nil {
			return 0, err
		}
	}
	for release, user := range c.releaseImages(versions) {
		named, ok := c.releases[release]
		if !ok {
			wait, due := c.due(release)
			if due {
				named, err = c.Registry.release(ctx, release)
				if wait = c.tried(release, err); err != nil {
					log.FromContext(ctx).Info("the release image could not be read", "release", release, "problem", err.Error())
				} else {
					c.releases[release] = named
				}
			}
			again = sooner(again, wait)
		}
		for _, i := range named {
			want.add(i, user)
		}
	}
	return again, nil
}

// releaseImages are those that are pinned by digest, with what names them.
func (c *Controller) releaseImages(versions []unstructured.Unstructured) map[string]string {
	all := map[string]string{}
	for _, r := range c.Releases {
		all[r] = "release " + r
	}
	add := func(m map[string]any, what string) {
		image, _ := m["image"].(string)
		version, _ := m["version"].(string)
		if digestOf(image) != "" {
			all[image] = what + " " + version
		}
	}
	for _, v := range versions {
		updates, _, _ := unstructured.NestedSlice(v.Object, "status", "availableUpdates")
		for _, u := range updates {
			m, _ := u.(map[string]any)
			add(m, "update")
		}
		desired, _, _ := unstructured.NestedMap(v.Object, "status", "desired")
		add(desired, "release")
	}
	return all
}

// rememberReleases takes from the OSImages what release images name, so that a
// restart reads none again.
func (c *Controller) rememberReleases(ctx context.Context) error {
	l := &v1alpha1.OSImageList{}
	if err := c.Manager.GetCache().List(ctx, l); err != nil {
		return wrap("listing", "OSImages", err)
	}
	for _, o := range l.Items {
		i := image{os: o.Spec.Image}
		if e := o.Status.Extensions; e != nil {
			i.extensions = e.Image
		}
		if t := o.Status.DriverToolkit; t != nil {
			i.toolkit = t.Image
		}
		for _, i.release = range o.Status.Releases {
			c.releases[i.release] = append(c.releases[i.release], i)
		}
	}
	return nil
}

// sooner is the shorter of two waits, where 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// sorted sorts in place and leaves out what is there twice.
func sorted(all []string) []string {
	slices.Sort(all)
	return slices.Compact(all)
}
