// Package act holds what an act of oneboot does to a node: the program is
// killed, and its system calls fail, at every step.
package act
