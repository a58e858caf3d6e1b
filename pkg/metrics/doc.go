// Package metrics turns what is known of nodes' first boots into Prometheus
// metrics. A collector gives what the last snapshot says: a scrape reads no
// host and asks no API server.
package metrics
