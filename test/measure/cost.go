package measure

import (
	"fmt"
	"os/exec"
	"slices"
	"time"
)

// A Cost is what a program took.
type Cost struct {
	Wall, Processor time.Duration
	// KiB is the most memory that it had.
	KiB int64
	// Requests and Bytes are what a registry was asked for, and has sent.
	Requests int
	Bytes    int64
}

// Run runs a program; what it asks of registries is for the caller to count.
func Run(cmd *exec.Cmd) (Cost, error) {
	began := time.Now()
	kib, err := Peak(cmd)
	c := Cost{Wall: time.Since(began), KiB: kib}
	if s := cmd.ProcessState; s != nil {
		c.Processor = s.UserTime() + s.SystemTime()
	}
	return c, err
}

func (c Cost) String() string {
	return fmt.Sprintf("%.3f s, %d requests, %.0f kB, %.2f s CPU, %.0f MiB", c.Wall.Seconds(), c.Requests, float64(c.Bytes)/1000, c.Processor.Seconds(), float64(c.KiB)/1024)
}

// Ratio is how many times longer theirs took than ours.
func Ratio(ours, theirs Cost) float64 { return float64(theirs.Wall) / float64(ours.Wall) }

// Middle is the cost in the middle by its time.
func Middle(all []Cost) Cost {
	slices.SortFunc(all, func(a, b Cost) int { return int(a.Wall - b.Wall) })
	return all[len(all)/2]
}

// Beside runs two programs in turns, so that what else goes on meets both.
func Beside(times int, ours, theirs func() Cost) (a, b Cost) {
	var as, bs []Cost
	for range times {
		as, bs = append(as, ours()), append(bs, theirs())
	}
	return Middle(as), Middle(bs)
}

// Head begins the table of all rows.
const Head = "| what | round trip | oneboot | beside it | that took | times as long |\n|---|---|---|---|---|---|\n"

// Row is a row of it.
func Row(what, roundTrip, other string, ours, theirs Cost) string {
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %.1f |\n", what, roundTrip, ours, other, theirs, Ratio(ours, theirs))
}
