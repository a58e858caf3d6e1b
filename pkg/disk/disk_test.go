package disk_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/disk"
)

// tool runs one of the machine's own tools and returns what it prints.
func tool(t testing.TB, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "PATH=/usr/sbin:/sbin:"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
	return string(out)
}

const diskSize = 128 << 10

// newDisk is a disk that sgdisk has partitioned.
func newDisk(t testing.TB) []byte {
	t.Helper()
	name := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(name, make([]byte, diskSize), 0o600); err != nil {
		t.Fatal(err)
	}
	tool(t, "sgdisk", "-U", "00000000-0000-4000-A000-000000000001",
		"-a", "1", "-n", "3:64:95", "-c", "3:boot", "-u", "3:11111111-2222-3333-4444-555555555555",
		"-n", "1:96:127", "-t", "1:ef00", "-c", "1:EFI-SYSTEM ü", "-u", "1:AAAAAAAA-2222-3333-4444-555555555555", name)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestReadTable(t *testing.T) {
	b := newDisk(t)
	got, err := disk.ReadTable(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	want := &disk.Table{SectorSize: 512, GUID: "00000000-0000-4000-a000-000000000001", Partitions: []disk.Partition{
		{Number: 1, TypeGUID: "c12a7328-f81f-11d2-ba4b-00a0c93ec93b", GUID: "aaaaaaaa-2222-3333-4444-555555555555", Name: "EFI-SYSTEM ü", Start: 48 << 10, Size: 16 << 10},
		{Number: 3, TypeGUID: "0fc63daf-8483-4772-8e79-3d69d8477de4", GUID: "11111111-2222-3333-4444-555555555555", Name: "boot", Start: 32 << 10, Size: 16 << 10},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	grown := append(bytes.Clone(b), make([]byte, 1<<20)...)
	if got, err := disk.ReadTable(bytes.NewReader(grown), int64(len(grown))); err != nil || got.Spare != 1<<20 {
		t.Errorf("grown: got %+v, %v", got, err)
	}
}

// A header's fields, by their places in it.
const (
	fieldSize, fieldOwn, fieldOther, fieldFirst, fieldLast = 12, 24, 32, 40, 48
	fieldEntries, fieldCount, fieldEntrySize, fieldSum     = 72, 80, 84, 88
	backupHeader                                           = diskSize - 512
	firstEntry                                             = 1024
)

// set32 and set64 change a field of a header and make its checksum right again.
func set32(at, field int, value uint32) func([]byte) {
	return func(b []byte) { binary.LittleEndian.PutUint32(b[at+field:], value); seal(b, at) }
}

func set64(at, field int, value uint64) func([]byte) {
	return func(b []byte) { binary.LittleEndian.PutUint64(b[at+field:], value); seal(b, at) }
}

func seal(b []byte, at int) {
	clear(b[at+16 : at+20])
	binary.LittleEndian.PutUint32(b[at+16:], crc32.ChecksumIEEE(b[at:at+92]))
}

// entry changes an entry in both tables and makes all checksums right again.
func entry(offset int, value uint64) func([]byte) {
	return func(b []byte) {
		backup := int(binary.LittleEndian.Uint64(b[backupHeader+fieldEntries:])) * 512
		for _, at := range []int{firstEntry, backup} {
			binary.LittleEndian.PutUint64(b[at+offset:], value)
		}
		sum := crc32.ChecksumIEEE(b[firstEntry : firstEntry+128*128])
		set32(512, fieldSum, sum)(b)
		set32(backupHeader, fieldSum, sum)(b)
	}
}

func TestHostileTables(t *testing.T) {
	good := newDisk(t)
	tests := []struct {
		name   string
		change func([]byte)
		keep   int // bytes; all where 0
		want   error
		says   string
	}{
		{"empty", nil, 1, disk.ErrNoTable, "no GUID"},
		{"no signature", func(b []byte) { b[512] = 0 }, 0, disk.ErrNoTable, ""},
		{"cut in the header", nil, 530, disk.ErrTruncated, ""},
		{"cut in the entries", nil, 2000, disk.ErrTruncated, "needs 256 sectors"},
		{"cut before the backup", nil, diskSize - 512, disk.ErrTruncated, "needs 256 sectors, there are 255"},
		{"checksum", func(b []byte) { b[512+60]++ }, 0, disk.ErrDamaged, "checksum"},
		{"checksum of the backup", func(b []byte) { b[backupHeader+60]++ }, 0, disk.ErrDamaged, "backup header"},
		{"checksum of the entries", func(b []byte) { b[firstEntry+3]++ }, 0, disk.ErrDamaged, "checksum of the entries"},
		{"no backup", func(b []byte) { clear(b[backupHeader:]) }, 0, disk.ErrDamaged, "there is none at sector 255"},
		{"two billion entries", set32(512, fieldCount, math.MaxUint32), 0, disk.ErrDamaged, "4294967295 entries"},
		{"no entries", set32(512, fieldCount, 0), 0, disk.ErrDamaged, "0 entries"},
		{"giant entries", set32(512, fieldEntrySize, math.MaxUint32), 0, disk.ErrDamaged, "entries of 4294967295 bytes"},
		{"long header", set32(512, fieldSize, 512), 0, disk.ErrDamaged, "512 bytes"},
		{"entries elsewhere", set64(512, fieldEntries, math.MaxUint64), 0, disk.ErrDamaged, "not on the disk"},
		{"entries at the end", set64(512, fieldEntries, diskSize/512), 0, disk.ErrTruncated, ""},
		{"own place", set64(512, fieldOwn, 2), 0, disk.ErrDamaged, "belongs to sector 2"},
		{"backup in itself", set64(512, fieldOther, 1), 0, disk.ErrDamaged, "out of order"},
		{"backup beyond numbers", set64(512, fieldOther, math.MaxUint64), 0, disk.ErrTruncated, ""},
		{"first behind last", set64(512, fieldFirst, math.MaxUint64), 0, disk.ErrDamaged, "out of order"},
		{"headers contradict", set64(backupHeader, fieldLast, 200), 0, disk.ErrDamaged, "contradict"},
		{"partition beyond the end", entry(40, math.MaxUint64), 0, disk.ErrDamaged, "partition 1"},
		{"partition of no size", entry(40, 5), 0, disk.ErrDamaged, "partition 1"},
		{"partition on the table", entry(32, 0), 0, disk.ErrDamaged, "partition 1"},
		{"overlap", entry(32, 95), 0, disk.ErrDamaged, "partitions 3 and 1 overlap"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := bytes.Clone(good)
			if tt.change != nil {
				tt.change(b)
			}
			if tt.keep > 0 {
				b = b[:tt.keep]
			}
			_, err := disk.ReadTable(bytes.NewReader(b), int64(len(b)))
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want %v with %q", err, tt.want, tt.says)
			}
		})
	}
}

// What mkfs makes, as blkid names it.
func TestReadFilesystem(t *testing.T) {
	const uuid = "910678ff-f77e-4a7d-8d53-86f2ac47a823"
	tests := []struct {
		name string
		size int64
		mkfs []string
	}{
		{"ext4", 4 << 20, []string{"mkfs.ext4", "-q", "-L", "boot", "-U", uuid}},
		{"ext4 without a label", 4 << 20, []string{"mkfs.ext4", "-q"}},
		{"ext4 with the longest label", 4 << 20, []string{"mkfs.ext4", "-q", "-L", "0123456789abcdef"}},
		{"xfs", 320 << 20, []string{"mkfs.xfs", "-q", "-L", "root", "-m", "uuid=" + uuid}},
		{"xfs with large sectors", 320 << 20, []string{"mkfs.xfs", "-q", "-L", "0123456789ab", "-s", "size=4096"}},
		{"vfat", 4 << 20, []string{"mkfs.vfat", "-n", "EFI-SYSTEM", "-i", "7b7795e7"}},
		{"vfat without a label", 4 << 20, []string{"mkfs.vfat"}},
		{"vfat32", 64 << 20, []string{"mkfs.vfat", "-F", "32", "-n", "EFI-SYSTEM"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "part")
			f, err := os.Create(name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := f.Truncate(tt.size); err != nil {
				t.Fatal(err)
			}
			tool(t, tt.mkfs[0], append(tt.mkfs[1:], name)...)
			got, err := disk.ReadFilesystem(f)
			if err != nil {
				t.Fatal(err)
			}
			var want disk.Filesystem
			for line := range strings.Lines(tool(t, "blkid", "-p", "-o", "export", name)) {
				key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
				switch key {
				case "TYPE":
					want.Type = value
				case "LABEL":
					want.Label = strings.ReplaceAll(value, `\`, "")
				case "UUID":
					want.UUID = strings.ToLower(value)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" || want.Type == "" {
				t.Errorf("(-blkid +got):\n%s", diff)
			}
		})
	}
}

func TestAmbivalent(t *testing.T) {
	b := make([]byte, 4096)
	copy(b, "XFSB")
	if fs, err := disk.ReadFilesystem(bytes.NewReader(b)); err != nil || fs.Type != disk.TypeXFS {
		t.Errorf("got %+v, %v", fs, err)
	}
	b[1024+56], b[1024+57] = 0x53, 0xef
	if fs, err := disk.ReadFilesystem(bytes.NewReader(b)); !errors.Is(err, disk.ErrAmbivalent) {
		t.Errorf("got %+v, %v", fs, err)
	}
}

type brokenDisk struct{}

var errBroken = errors.New("the disk is broken")

func (brokenDisk) ReadAt([]byte, int64) (int, error) { return 0, errBroken }

// An error of reading is neither absence nor damage.
func TestBrokenDisk(t *testing.T) {
	_, err1 := disk.ReadTable(brokenDisk{}, diskSize)
	_, err2 := disk.ReadFilesystem(brokenDisk{})
	_, err3 := disk.ReadForm(brokenDisk{})
	for _, err := range []error{err1, err2, err3} {
		if !errors.Is(err, errBroken) || errors.Is(err, disk.ErrNoTable) || errors.Is(err, disk.ErrDamaged) {
			t.Errorf("got %v", err)
		}
	}
}

func TestReadForm(t *testing.T) {
	raw := newDisk(t)
	dir := t.TempDir()
	name := filepath.Join(dir, "disk.raw")
	if err := os.WriteFile(name, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	iso := make([]byte, 40<<10)
	copy(iso[32769:], "CD001")
	tool(t, "gzip", "-k", name)
	tool(t, "xz", "-k", name)
	tool(t, "bzip2", "-k", name)
	tool(t, "tar", "-C", dir, "-cf", name+".tar", "disk.raw")
	for want, content := range map[disk.Form][]byte{
		disk.FormRaw: raw, disk.FormISO: iso, disk.FormZstd: []byte("\x28\xb5\x2f\xfd12"), disk.FormQCOW2: []byte("QFI\xfb\x00\x00\x00\x03"),
		disk.FormVMDK: []byte("KDMV1234"), disk.FormVHDX: []byte("vhdxfile"),
		disk.FormGzip: read(t, name+".gz"), disk.FormXZ: read(t, name+".xz"), disk.FormBzip2: read(t, name+".bz2"), disk.FormTar: read(t, name+".tar"),
	} {
		if got, err := disk.ReadForm(bytes.NewReader(content)); got != want || err != nil {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
	if got, err := disk.ReadForm(bytes.NewReader(nil)); got != disk.FormRaw || err != nil {
		t.Errorf("empty: got %s, %v", got, err)
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Whatever a table says, its partitions lie on the disk and apart.
func FuzzReadTable(f *testing.F) {
	good := newDisk(f)
	head := 512 + 512 + 128*128
	seed := func(change func([]byte)) {
		b := bytes.Clone(good)
		if change != nil {
			change(b)
		}
		f.Add(b[:head], b[backupHeader-128*128:])
	}
	seed(nil)
	seed(set32(512, fieldCount, math.MaxUint32))
	seed(set64(512, fieldEntries, math.MaxUint64))
	seed(entry(40, math.MaxUint64))
	f.Fuzz(func(t *testing.T, start, end []byte) {
		b := make([]byte, diskSize)
		copy(b, start)
		end = end[:min(len(end), diskSize)]
		copy(b[diskSize-len(end):], end)
		// Sums that are wrong would end nearly every try.
		for _, at := range []int{512, backupHeader} {
			seal(b, at)
		}
		r := bytes.NewReader(b)
		table, err := disk.ReadTable(r, diskSize)
		if err != nil {
			return
		}
		for i, p := range table.Partitions {
			if p.Start < 0 || p.Size <= 0 || p.Start > diskSize-p.Size {
				t.Errorf("partition %+v", p)
			}
			for _, o := range table.Partitions[:i] {
				if p.Start < o.Start+o.Size && o.Start < p.Start+p.Size {
					t.Errorf("partitions %+v and %+v overlap", p, o)
				}
			}
			_, _ = disk.ReadFilesystem(io.NewSectionReader(r, p.Start, p.Size))
		}
	})
}

func FuzzReadFilesystem(f *testing.F) {
	f.Add([]byte("XFSB"))
	f.Add(append(make([]byte, 1024+56), 0x53, 0xef))
	f.Add(append(make([]byte, 510), 0x55, 0xaa))
	f.Add([]byte("LUKS\xba\xbe\x00\x02"))
	f.Fuzz(func(t *testing.T, b []byte) {
		full := append(bytes.Clone(b), make([]byte, 1<<10)...)
		fs, err := disk.ReadFilesystem(bytes.NewReader(full))
		if err == nil && fs.Type == "" && fs != (disk.Filesystem{}) {
			t.Errorf("got %+v", fs)
		}
		if len(fs.Label) > 256 || len(fs.UUID) > 40 {
			t.Errorf("got %+v", fs)
		}
		_, _ = disk.ReadForm(bytes.NewReader(full))
	})
}
