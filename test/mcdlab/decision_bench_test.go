//go:build mcd

package mcdlab

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/oneboot/oneboot/test/measure"
)

// BenchmarkDecision is oneboot beside the daemon's own way from its start to finding
// that nothing is to be done, on nodes whose origin names the wanted image.
func BenchmarkDecision(b *testing.B) {
	const times = 5
	l := newLab(b)
	fmt.Print("\n", measure.Head) // a log would be cut
	for b.Loop() {
		for _, d := range daemons() {
			var ours, theirs []measure.Cost
			for range times {
				n := l.bootNode(b, d, nodeOptions{container: true})
				n.firstboot(b, "assert")
				c, err := measure.Run(exec.Command(l.oneboot, "analyze", "--root", n.Dir))
				if err != nil {
					b.Fatal(err)
				}
				ours = append(ours, c)
				began := time.Now()
				if r := n.mcd(b); r.outcome != skipped {
					b.Fatalf("the daemon %s\n%s", r.outcome, r.output)
				}
				theirs = append(theirs, measure.Cost{Wall: time.Since(began)})
			}
			fmt.Print(measure.Row("analyze by manifest digest", "0", "machine-config-daemon "+d.release+", from start to skip (wall time alone)", measure.Middle(ours), measure.Middle(theirs)))
		}
	}
}
