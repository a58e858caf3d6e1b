package main

import (
	"fmt"
	"net/http"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	prom "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/oneboot/oneboot/pkg/api/v1alpha1"
	"github.com/oneboot/oneboot/pkg/bootimage"
	"github.com/oneboot/oneboot/pkg/controller/cluster"
	"github.com/oneboot/oneboot/pkg/metrics"
)

func newController() *cobra.Command {
	var (
		serve    serving
		registry cluster.Registry
		elect    bool
		releases []string
	)
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Keep OSImages and FirstbootForecasts",
		Long: `Keep an OSImage for each OS image that pools, image streams and available updates
name, read once from its registry, and a FirstbootForecast for each source of new
nodes: what its next node will do on its first boot. Kinds that the cluster does not
have are not needed, and are picked up when they appear.`,
		Example: `  oneboot-cluster controller --authfile /etc/oneboot/pull-secret/.dockerconfigjson`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := ctrl.GetConfig()
			if err != nil {
				return fmt.Errorf("reading the kubeconfig: %w", err)
			}
			// The API server's own priority and fairness bounds what is asked of it.
			config.QPS = -1
			mgr, err := ctrl.NewManager(config, controllerOptions(&serve, elect))
			if err != nil {
				return fmt.Errorf("starting: %w", err)
			}
			registry.Architecture = bootimage.GoArchitecture(registry.Architecture)
			c := &cluster.Controller{Manager: mgr, Registry: registry, Releases: releases, Collector: &metrics.ForecastCollector{}}
			if err := prom.Registry.Register(c.Collector); err != nil {
				return fmt.Errorf("starting: %w", err)
			}
			if err := c.Setup(); err != nil {
				return fmt.Errorf("starting: %w", err)
			}
			if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
				return fmt.Errorf("starting: %w", err)
			}
			if err := mgr.AddReadyzCheck("set up", func(*http.Request) error { return c.Ready() }); err != nil {
				return fmt.Errorf("starting: %w", err)
			}
			return mgr.Start(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&registry.Root, "root", "/", "registry configuration is below `DIR`")
	flags.StringVar(&registry.AuthFile, "authfile", "", "registry credentials from `FILE`")
	flags.StringVar(&registry.Architecture, "arch", runtime.GOARCH, "of manifest lists look at the image for `ARCHITECTURE`")
	flags.StringArrayVar(&releases, "release", nil, "also keep the OS image of the release `IMAGE`, by digest (repeatable)")
	flags.BoolVar(&elect, "leader-elect", true, "work only as the one that was elected")
	serve.add(flags)
	return cmd
}

// The times that OpenShift's operators use (LeaderElectionDefaulting in
// pkg/config/leaderelection of library-go): an API server may be away for a minute, and
// few requests say who leads.
const (
	leaseDuration = 137 * time.Second
	renewDeadline = 107 * time.Second
	retryPeriod   = 26 * time.Second
)

// controllerOptions cache no more than is read.
func controllerOptions(serve *serving, elect bool) ctrl.Options {
	scheme := kruntime.NewScheme()
	for _, add := range []func(*kruntime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // never: the kinds are this program's own
		}
	}
	return ctrl.Options{
		Scheme: scheme, Metrics: serve.metricsOptions(), HealthProbeBindAddress: serve.probes,
		LeaderElection: elect, LeaderElectionID: "controller.oneboot.dev", LeaderElectionNamespace: leaderNamespace(), LeaderElectionReleaseOnCancel: true,
		LeaseDuration: new(leaseDuration), RenewDeadline: new(renewDeadline), RetryPeriod: new(retryPeriod),
		Cache: cache.Options{
			DefaultTransform: cluster.Strip,
			ByObject: map[client.Object]cache.ByObject{
				// Of all ConfigMaps one, and no Secret at all.
				&corev1.ConfigMap{}: {Field: fields.OneTermEqualSelector(metav1.ObjectNameField, bootimage.ConfigMapName)},
			},
		},
	}
}
