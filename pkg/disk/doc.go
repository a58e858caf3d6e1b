// Package disk reads what a raw disk image is: its form, its GUID partition
// table and the superblocks of its file systems. It reads bytes through an
// [io.ReaderAt], bounded in size and count, and mounts nothing; what is in the
// file systems is the kernel's to read.
//
// Formats: UEFI 2.10 section 5.3 (GPT), the kernel's fs/ext4/ext4.h,
// fs/xfs/libxfs/xfs_format.h and include/uapi/linux/msdos_fs.h.
package disk
