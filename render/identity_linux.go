package render

import (
	"io/fs"
	"syscall"
	"time"
)

// identityOf returns what the system tells of a file.
func identityOf(i fs.FileInfo) (identity, bool) {
	s, ok := i.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}, false
	}
	return identity{uint64(s.Dev), s.Ino, time.Unix(s.Ctim.Unix())}, true
}
