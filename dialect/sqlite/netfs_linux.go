package sqlite

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// networkFileSystem refuses folders in which SQLite's locks do not work between hosts, or not at all.
func networkFileSystem(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return nil // opening the file will report it
	}
	kind, bad := map[int64]string{
		unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB2",
	}[int64(fs.Type)]
	if bad {
		return fmt.Errorf("%s is on a network file system (%s), where SQLite's locks cannot be trusted: use a local disk, or PostgreSQL or MySQL", dir, kind)
	}
	return nil
}
