package cases

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// childArgument makes the test binary analyze without root's right to read
// everything: the options come on standard input, the verdict goes to standard
// output.
const childArgument = "analyze-without-the-right-to-read-all"

func childMain() int {
	if err := analyzeAsChild(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func analyzeAsChild() error {
	var opts daemon.Options
	if err := json.NewDecoder(os.Stdin).Decode(&opts); err != nil {
		return err
	}
	if err := dropReading(); err != nil {
		return fmt.Errorf("dropping capabilities: %w", err)
	}
	res, err := daemon.Analyze(context.Background(), opts)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(res.Verdict)
}

// dropReading takes the capabilities to read and write what the file's mode
// forbids from all threads of the process.
func dropReading() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	for _, c := range []int{unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH} {
		mask := ^uint32(1 << c)
		data[0].Effective &= mask
		data[0].Permitted &= mask
		data[0].Inheritable &= mask
	}
	// Each thread has capabilities of its own, and Go picks the thread.
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// analyzeUnprivileged runs the analysis in such a process.
func analyzeUnprivileged(opts daemon.Options) (verdict.Verdict, error) {
	var v verdict.Verdict
	exe, err := os.Executable()
	if err != nil {
		return v, err
	}
	cmd := exec.Command(exe, childArgument)
	stdin, err := json.Marshal(opts)
	if err != nil {
		return v, err
	}
	cmd.Stdin, cmd.Stderr = bytes.NewReader(stdin), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal(out, &v)
}
