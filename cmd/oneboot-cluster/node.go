package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	prom "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/oneboot/oneboot/pkg/controller/node"
	"github.com/oneboot/oneboot/pkg/metrics"
)

func newNode() *cobra.Command {
	var (
		serve serving
		r     node.Reconciler
	)
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Report on the first boot of the node that this runs on",
		Long: `Read the record of the node's first boot below --root and report it: as metrics,
in annotations of its own Node under oneboot.dev/ and as one Event. Nothing is
written on the host. A node without a record is reported as one.`,
		Example: `  oneboot-cluster node --root /host --node-name worker-0`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := r.Check(); err != nil {
				return err
			}
			if r.Every <= 0 {
				return fmt.Errorf("--interval: %s is not a time to wait", r.Every)
			}
			config, err := ctrl.GetConfig()
			if err != nil {
				return fmt.Errorf("reading the kubeconfig: %w", err)
			}
			scheme := runtime.NewScheme()
			if err := corev1.AddToScheme(scheme); err != nil {
				return err
			}
			mgr, err := ctrl.NewManager(config, ctrl.Options{
				Scheme: scheme, Metrics: serve.metricsOptions(), HealthProbeBindAddress: serve.probes,
				// Its own Node alone is watched.
				Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
					&corev1.Node{}: {Field: fields.OneTermEqualSelector("metadata.name", r.Name)},
				}},
			})
			if err != nil {
				return fmt.Errorf("starting: %w", err)
			}
			r.Client, r.Collector = mgr.GetClient(), &metrics.NodeCollector{}
			if err := prom.Registry.Register(r.Collector); err != nil {
				return fmt.Errorf("starting: %w", err)
			}
			if err := r.Setup(mgr); err != nil {
				return fmt.Errorf("starting: %w", err)
			}
			for _, add := range []func(string, healthz.Checker) error{mgr.AddHealthzCheck, mgr.AddReadyzCheck} {
				if err := add("ping", healthz.Ping); err != nil {
					return fmt.Errorf("starting: %w", err)
				}
			}
			return mgr.Start(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&r.Root, "root", "/host", "read the host below `DIR`")
	flags.StringVar(&r.Name, "node-name", os.Getenv("NODE_NAME"), "report on the Node `NAME`; $NODE_NAME where it is not given")
	flags.DurationVar(&r.Every, "interval", time.Minute, "read the host again after `TIME`")
	serve.add(flags)
	return cmd
}
