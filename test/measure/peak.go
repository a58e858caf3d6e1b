package measure

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Peak runs a program and returns the most memory that it had, in KiB. It is looked
// at every 2 ms: what the kernel keeps for a child begins with the parent's.
func Peak(cmd *exec.Cmd) (kib int64, err error) {
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid)) // gone at the end
		for line := range strings.Lines(string(status)) {
			var now int64
			if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &now); n == 1 {
				kib = max(kib, now)
			}
		}
		select {
		case err := <-ended:
			return kib, err
		case <-tick.C:
		}
	}
}
