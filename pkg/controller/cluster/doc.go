// Package cluster keeps an OSImage for each OS image that the cluster wants and a
// FirstbootForecast for each source of new nodes. All its objects come from one
// cache; a registry is asked once for each image, and what it said is kept in the
// OSImage.
package cluster
