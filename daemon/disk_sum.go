package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// sumSuffix is what the name of an image is followed by in that of its checksum.
const sumSuffix = ".sha256"

// maxSumFile bounds a file of checksums, which may have those of many images.
const maxSumFile = 1 << 20

// compareSum compares an image with the checksum beside it. Nothing is read of
// the image where there is none. The error is the end of the context.
func (d *diskRun) compareSum(ctx context.Context, f *os.File) error {
	name := d.opts.Path + sumSuffix
	raw, err := readCallerFile(name, maxSumFile)
	if errors.Is(err, fs.ErrNotExist) {
		d.sum = verdict.Check{Outcome: verdict.OutcomeSkipped, Detail: "there is no " + name}
		if !d.opts.WriteSHA256 {
			d.warn("there is no %s: what is published cannot be told from what was checked: --write-sha256 writes it", name)
		}
		return nil
	}
	want := ""
	if err == nil {
		want, err = sumOf(string(raw), filepath.Base(d.opts.Path))
	}
	if err != nil {
		err = fmt.Errorf("reading %s: %w", name, bare(err))
		d.fail(DiskChecksum, err)
		d.sum = verdict.Check{Detail: err.Error()}
		return nil
	}
	have, err := d.hash(ctx, f)
	if err != nil {
		return err
	}
	d.sum = verdict.Check{Outcome: verdict.OutcomeSame, Booted: "as in " + filepath.Base(name)}
	if have != want {
		d.sum.Booted, d.sum.Target = have, want
		d.sum.Outcome, d.sum.Detail = verdict.OutcomeDiffers, fmt.Sprintf("the image is %s, %s says %s", have, name, want)
	}
	return nil
}

// sumOf finds the checksum of a file in what sha256sum writes, or in a file that
// has nothing but one.
func sumOf(text, base string) (string, error) {
	found := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" {
			continue
		}
		sum, name, named := strings.Cut(line, " ")
		// Behind the blank is another, or an asterisk.
		if named && len(name) > 1 {
			if filepath.Base(name[1:]) != base {
				continue
			}
		}
		sum = strings.ToLower(sum)
		if b, err := hex.DecodeString(sum); err != nil || len(b) != sha256.Size {
			return "", errors.New("it is not what sha256sum writes")
		}
		if found != "" && found != sum {
			return "", fmt.Errorf("it has two checksums of %s", base)
		}
		found = sum
	}
	if found == "" {
		return "", fmt.Errorf("it has no checksum of %s", base)
	}
	return found, nil
}

// hash reads the whole image.
func (d *diskRun) hash(ctx context.Context, f *os.File) (string, error) {
	if d.report.Disk.SHA256 != "" {
		return d.report.Disk.SHA256, nil
	}
	h := sha256.New()
	r := io.NewSectionReader(f, 0, d.report.Disk.Bytes)
	for {
		_, err := io.CopyN(h, r, 16<<20)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", fmt.Errorf("reading %s: %w", d.opts.Path, bare(err))
		}
		if err := ctx.Err(); err != nil {
			return "", fmt.Errorf("reading %s: %w", d.opts.Path, err)
		}
	}
	d.report.Disk.SHA256 = hex.EncodeToString(h.Sum(nil))
	return d.report.Disk.SHA256, nil
}

// writeSum writes the checksum of a disk that is as wanted beside it. A file
// that is there is left alone: it was compared.
func (d *diskRun) writeSum(ctx context.Context, f *os.File) error {
	name := d.opts.Path + sumSuffix
	if d.sum.Outcome != verdict.OutcomeSkipped {
		return nil
	}
	if d.report.Outcome != verdict.OutcomeSame {
		d.warn("%s is not written: it would have a disk published that is not proven to boot once", name)
		return nil
	}
	sum, err := d.hash(ctx, f)
	if err != nil {
		return err
	}
	if err := createSum(name, sum+"  "+filepath.Base(d.opts.Path)+"\n"); err != nil {
		return fmt.Errorf("writing %s: %w", name, bare(err))
	}
	i := len(d.report.Checks) - 1
	d.report.Checks[i] = verdict.Check{Name: DiskCheckSum, Outcome: verdict.OutcomeSame, Booted: "written to " + filepath.Base(name)}
	return nil
}

// createSum writes a new file whole or not at all.
func createSum(name, text string) error {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return unix.Renameat2(unix.AT_FDCWD, f.Name(), unix.AT_FDCWD, name, unix.RENAME_NOREPLACE)
}
