package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// A Forecast is one source of new nodes.
type Forecast struct{ Pool, Outcome string }

// A ForecastCollector gives the number of sources of new nodes by pool and by what
// their next node will do. It is safe for use by several goroutines.
type ForecastCollector struct {
	now atomic.Pointer[map[Forecast]int]
}

var _ prometheus.Collector = (*ForecastCollector)(nil)

var forecastSources = prometheus.NewDesc("oneboot_forecast_sources",
	"Sources of new nodes by pool and by what their next node will do on its first boot.", []string{"pool", "outcome"}, nil)

// Set takes the place of what was known before.
func (c *ForecastCollector) Set(all []Forecast) {
	count := map[Forecast]int{}
	for _, f := range all {
		count[f]++
	}
	c.now.Store(&count)
}

// Describe sends the one description.
func (c *ForecastCollector) Describe(ch chan<- *prometheus.Desc) { ch <- forecastSources }

// Collect sends what was last set.
func (c *ForecastCollector) Collect(ch chan<- prometheus.Metric) {
	if now := c.now.Load(); now != nil {
		for f, n := range *now {
			ch <- prometheus.MustNewConstMetric(forecastSources, prometheus.GaugeValue, float64(n), f.Pool, f.Outcome)
		}
	}
}
