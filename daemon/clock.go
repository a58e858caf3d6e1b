package daemon

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// clockPoll is the time between two looks at the clock.
const clockPoll = 250 * time.Millisecond

// WaitForClock waits until the kernel says that its clock is synchronized, at
// most as long as given, and reports whether it is.
//
// A skipped reboot needs it: the machine-config-daemon's chrony-wait drop-in
// lets a node join without waiting for the time, since on its first boot of
// two chronyd had minutes for it, and a kubelet with a wrong clock gets its
// certificates refused. The answer is only ever worth a line in a log: a node
// without a time source, or whose chrony.conf lacks rtcsync and so never tells
// the kernel, loses the wait and nothing else.
func WaitForClock(ctx context.Context, most time.Duration) bool {
	return waitFor(ctx, most, clockPoll, clockSynchronized)
}

// waitFor polls until done says true, says that it cannot tell, or time is up.
func waitFor(ctx context.Context, most, poll time.Duration, done func() (bool, error)) bool {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return ok && err == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
}

// clockSynchronized asks the kernel as adjtimex(2) does with no mode set, which
// changes nothing and needs no privilege. TIME_ERROR and STA_UNSYNC both say
// that nothing disciplines the clock.
func clockSynchronized() (bool, error) {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return false, err
	}
	return state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0, nil
}
