// Command oneboot-cluster is oneboot's part in the cluster: node reports on the
// node that it runs on, controller keeps OSImages and FirstbootForecasts.
package main

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func newRoot() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "oneboot-cluster",
		Short: "Report on first boots from within the cluster",
		Args:  cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			ctrl.SetLogger(logr.FromSlogHandler(slog.NewJSONHandler(cmd.ErrOrStderr(), nil)))
		},
	}
	cmd.AddCommand(newNode(), newController())
	cmd.CompletionOptions.HiddenDefaultCmd = true
	return cmd
}

// leaderNamespace is the pod's own, which POD_NAMESPACE says; where it does not, that of
// the manifests.
func leaderNamespace() string { return cmp.Or(os.Getenv("POD_NAMESPACE"), "oneboot-controller") }

// serving are the flags of what a manager serves.
type serving struct {
	metrics, certificates, probes string
}

func (s *serving) add(flags *pflag.FlagSet) {
	flags.StringVar(&s.metrics, "metrics-bind-address", ":8443", "serve metrics by TLS on `ADDRESS`, to who may get /metrics; 0 turns it off")
	flags.StringVar(&s.certificates, "metrics-cert-dir", "", "take tls.crt and tls.key from `DIR`, also when they change; a certificate of its own where empty")
	flags.StringVar(&s.probes, "health-probe-bind-address", ":8081", "serve /healthz and /readyz on `ADDRESS`; 0 turns it off")
}

// metricsOptions serve metrics to those whom the API server knows and who may
// get the path.
func (s *serving) metricsOptions() server.Options {
	return server.Options{
		BindAddress: s.metrics, SecureServing: true, CertDir: s.certificates,
		FilterProvider: filters.WithAuthenticationAndAuthorization,
		// HTTP/2 lets one client ask for more than it reads.
		TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.MinVersion, c.NextProtos = tls.VersionTLS12, []string{"http/1.1"} }},
	}
}
