package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// A Forecast is one source of new nodes.
type Forecast struct {
	Pool, Outcome string
	// CameTrue and CameOtherwise count its nodes whose first pivots went as forecast,
	// or otherwise.
	CameTrue, CameOtherwise int
}

// A ForecastCollector gives the number of sources of new nodes by pool and by what
// their next node will do, and how often that came true. It is safe for use by several
// goroutines.
type ForecastCollector struct {
	now atomic.Pointer[forecastCounts]
}

type forecastCounts struct {
	sources, nodes map[[2]string]int
}

var _ prometheus.Collector = (*ForecastCollector)(nil)

var (
	forecastSources = prometheus.NewDesc("oneboot_forecast_sources",
		"Sources of new nodes by pool and by what their next node will do on its first boot.", []string{"pool", "outcome"}, nil)
	forecastNodes = prometheus.NewDesc("oneboot_forecast_nodes",
		"Nodes made since the forecast of their source became what it is, by pool and by whether their first pivot went as forecast.", []string{"pool", "result"}, nil)
)

// Set takes the place of what was known before.
func (c *ForecastCollector) Set(all []Forecast) {
	count := forecastCounts{map[[2]string]int{}, map[[2]string]int{}}
	for _, f := range all {
		count.sources[[2]string{f.Pool, f.Outcome}]++
		count.nodes[[2]string{f.Pool, "as-forecast"}] += f.CameTrue
		count.nodes[[2]string{f.Pool, "otherwise"}] += f.CameOtherwise
	}
	c.now.Store(&count)
}

// Describe sends the descriptions.
func (c *ForecastCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- forecastSources
	ch <- forecastNodes
}

// Collect sends what was last set.
func (c *ForecastCollector) Collect(ch chan<- prometheus.Metric) {
	now := c.now.Load()
	if now == nil {
		return
	}
	for labels, n := range now.sources {
		ch <- prometheus.MustNewConstMetric(forecastSources, prometheus.GaugeValue, float64(n), labels[0], labels[1])
	}
	for labels, n := range now.nodes {
		ch <- prometheus.MustNewConstMetric(forecastNodes, prometheus.GaugeValue, float64(n), labels[0], labels[1])
	}
}
