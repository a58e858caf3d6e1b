// Package cases holds nodes that people have reported, each with the answer
// that oneboot must give and why. It has tests only; the form of a case is
// described in testdata/README.md.
package cases
