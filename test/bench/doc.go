// Package bench holds what oneboot's speed is claimed by: one table, in which every
// row is measured beside something else in the same run.
package bench
