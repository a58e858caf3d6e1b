package daemon

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/record"
)

// ModeReport decides and records; nothing else on the host changes.
const ModeReport = "report"

// Firstboot decides and writes the record below the root. Where the record
// cannot be written the result is still returned beside the error.
func Firstboot(ctx context.Context, opts Options, version string) (*Result, error) {
	res, err := Analyze(ctx, opts)
	if err != nil {
		return nil, err
	}
	rec := record.Record{
		Version: version, Mode: ModeReport, Time: time.Now().UTC(), BootID: bootID(opts.Root),
		Seconds:  res.Seconds,
		Registry: record.Registry{Requests: res.Transfer.Requests, Bytes: res.Transfer.Bytes},
		Verdict:  res.Verdict,
	}
	b, err := rec.Marshal()
	if err != nil {
		return res, err
	}
	if err := writeFile(opts.Root, record.Path, b, 0o644); err != nil {
		return res, fmt.Errorf("writing record: %w", err)
	}
	return res, nil
}

// bootID is empty where it cannot be read; the join then counts as another
// boot's.
func bootID(dir string) string {
	root, err := hostfs.Open(dir)
	if err != nil {
		return ""
	}
	defer root.Close()
	raw, err := root.ReadFile(bootIDPath, maxSmallFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}
