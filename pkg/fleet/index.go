package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strconv"

	"github.com/oneboot/oneboot/pkg/forecast"
)

// labelCluster is on the machine sets of a cluster, with its infrastructure's name.
const labelCluster = "machine.openshift.io/cluster-api-cluster"

// labelLayering turned on the layering of a pool before there were MachineOSConfigs
// (OCBMachineConfigPoolLabel in pkg/controller/build of the machine-config-operator).
const labelLayering = "machineconfiguration.openshift.io/layering-enabled"

// index reads the objects that others refer to.
func (f *Fleet) index() {
	f.pools, f.configs, f.layered, f.releases = map[string]document{}, map[string]document{}, map[string]bool{}, map[string]string{}
	f.images, f.elsewhere, f.osImages, f.metalImages = map[string]cloudImage{}, map[string]*forecast.Target{}, map[string][]osImage{}, nil
	f.clusters, f.configMaps, f.twofold = map[string]*cluster{}, map[string]document{}, map[string]bool{}
	f.release, f.severalClusters, f.environments = "", false, nil
	sets, clusters, machines := map[string]document{}, map[string]document{}, document{}
	for _, d := range f.documents {
		name := text(d.body, "metadata", "name")
		switch text(d.body, "kind") {
		case "MachineConfigPool":
			f.once(f.pools, name, d, func(d document) any { return served(d.body) })
			if at(d.body, "metadata", "labels", labelLayering) != nil {
				f.layered[name] = true
			}
		case "MachineConfig":
			f.once(f.configs, name, d, func(d document) any { return at(d.body, "spec") })
		case "MachineOSConfig":
			f.layered[text(d.body, "spec", "machineConfigPool", "name")] = true
		case "ConfigMap":
			f.configMaps[path.Join(text(d.body, "metadata", "namespace"), name)] = d
			if at(d.body, "data", keySkip) != nil {
				// Of the operator's namespace, which no other object names.
				f.configMaps[name] = d
			}
			f.configMap(d)
		case "AgentServiceConfig":
			if environment := text(d.body, "metadata", "annotations", annotationEnvironment); environment != "" {
				f.environments = append(f.environments, environment)
			}
			list, _ := at(d.body, "spec", "osImages").([]any)
			for _, i := range list {
				of := text(i, "openshiftVersion")
				f.osImages[of] = append(f.osImages[of], osImage{text(i, "version"), text(i, "url"), goArch(text(i, "cpuArchitecture"))})
			}
		case "ClusterImageSet":
			f.once(sets, name, d, func(d document) any { return text(d.body, "spec", "releaseImage") })
		case "ClusterVersion":
			f.once(clusters, name, d, func(d document) any { return releaseNow(d.body) })
		case "MachineSet", "ControlPlaneMachineSet":
			machines = f.sameCluster(machines, d)
		}
	}
	for name, d := range sets {
		if !f.twofold["ClusterImageSet "+name] {
			f.releases[name] = text(d.body, "spec", "releaseImage")
		}
	}
	for name, d := range clusters {
		if !f.twofold["ClusterVersion "+name] {
			f.release = releaseNow(d.body)
		}
	}
	// They name image sets.
	for _, d := range f.documents {
		f.indexCluster(d)
	}
}

// once keeps an object of which there is one. Another of that name which says
// something else makes both of no use: they are of two clusters.
func (f *Fleet) once(all map[string]document, name string, d document, says func(document) any) {
	before, ok := all[name]
	if ok && !reflect.DeepEqual(says(before), says(d)) {
		kind := text(d.body, "kind")
		f.twofold[kind+" "+name] = true
		f.problem(d.file, d.line, fmt.Errorf("another %s %s, in %s, says something else: read the objects of one cluster at a time", kind, strconv.Quote(name), place(before)))
		return
	}
	all[name] = d
}

// sameCluster compares the cluster that machines are of with that of others, and
// returns one of the two that says it.
func (f *Fleet) sameCluster(before, d document) document {
	of := func(d document) string { return text(d.body, "metadata", "labels", labelCluster) }
	switch {
	case of(d) == "":
		return before
	case of(before) == "":
		return d
	case of(d) != of(before) && !f.severalClusters:
		f.severalClusters = true
		f.problem(d.file, d.line, fmt.Errorf("its machines are of cluster %s, and those in %s of %s: read the objects of one cluster at a time",
			strconv.Quote(of(d)), place(before), strconv.Quote(of(before))))
	}
	return before
}

func place(d document) string {
	if d.line == 0 {
		return d.file
	}
	return d.file + ":" + strconv.Itoa(d.line)
}

func releaseNow(body any) string {
	return cmp.Or(text(body, "status", "desired", "version"), text(body, "spec", "desiredUpdate", "version"))
}

// served is the name of the MachineConfig that a new node of a pool gets: in an
// update the one from before, until the first node has the new one (GetConfig in
// pkg/server/cluster_server.go of the machine-config-operator).
func served(pool any) string {
	next, now := text(pool, "spec", "configuration", "name"), text(pool, "status", "configuration", "name")
	updated := at(pool, "status", "updatedMachineCount")
	none := updated == nil || reflect.ValueOf(updated).IsZero()
	if now != "" && none {
		return now
	}
	return cmp.Or(next, now)
}

// targets are what the pools want.
func (f *Fleet) targets() map[string]*forecast.Target {
	all := map[string]*forecast.Target{}
	for pool, t := range f.elsewhere {
		all[pool] = t
	}
	_, unread := f.installer()
	for _, pool := range sortedNames(f.pools) {
		d := f.pools[pool]
		name := served(d.body)
		mc, ok := f.configs[name]
		if pool == "" || name == "" || !ok || f.severalClusters || f.twofold["MachineConfigPool "+pool] || f.twofold["MachineConfig "+name] {
			continue
		}
		t := &forecast.Target{
			Pool: pool, Layered: f.layered[pool], Unread: unread,
			Release: cmp.Or(text(mc.body, "metadata", "annotations", "machineconfiguration.openshift.io/release-image-version"), f.release),
			Stream:  cmp.Or(text(d.body, "spec", "osImageStream", "name"), text(d.body, "status", "osImageStream", "name")),
		}
		if err := wants(t, mc.body); err != nil {
			f.problem(mc.file, mc.line, fmt.Errorf("MachineConfig %s: %w", strconv.Quote(name), err))
			continue
		}
		if t.OSImage != "" {
			all[pool] = t
		}
	}
	return all
}

func sortedNames(m map[string]document) []string {
	var all []string
	for name := range m {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// wants adds what a MachineConfig wants of the OS. One of which something has
// another type than the API says is none.
func wants(t *forecast.Target, mc any) error {
	for _, s := range []struct {
		field string
		to    *string
	}{{"osImageURL", &t.OSImage}, {"kernelType", &t.KernelType}, {"baseOSExtensionsContainerImage", &t.ExtensionsImage}} {
		switch v := at(mc, "spec", s.field).(type) {
		case nil:
		case string:
			*s.to = cmp.Or(v, *s.to)
		default:
			return fmt.Errorf("spec.%s is not a string", s.field)
		}
	}
	for _, s := range []struct {
		field string
		to    *[]string
	}{{"extensions", &t.Extensions}, {"kernelArguments", &t.KernelArguments}} {
		v := at(mc, "spec", s.field)
		list, ok := v.([]any)
		words := texts(mc, "spec", s.field)
		if v != nil && !ok || len(words) != len(list) {
			return fmt.Errorf("spec.%s is not a list of strings", s.field)
		}
		*s.to = append(*s.to, words...)
	}
	switch v := at(mc, "spec", "fips").(type) {
	case nil:
	case bool:
		t.FIPS = t.FIPS || v
	default:
		return errors.New("spec.fips is neither true nor false")
	}
	return nil
}
