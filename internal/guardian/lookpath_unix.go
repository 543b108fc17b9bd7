//go:build unix

package guardian

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// LookPath finds the file to run as a shell does: in the command's own PATH,
// which is /usr/bin:/bin if it has none. With an error it returns the exit
// code, 126 or 127.
func LookPath(name string, env []string) (string, int, error) {
	if strings.Contains(name, "/") {
		code, err := runnable(name)
		return name, code, err
	}
	path := "/usr/bin:/bin"
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			path = value
			break
		}
	}
	code, err := 127, fmt.Errorf("%s: command not found in %s", name, path)
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, name)
		switch c, e := runnable(file); {
		case e == nil:
			return file, 0, nil
		case c == 126 && code != 126: // another may be further on
			code, err = c, e
		}
	}
	return "", code, err
}

func runnable(file string) (int, error) {
	info, err := os.Stat(file)
	if err == nil && info.IsDir() {
		err = &fs.PathError{Op: "exec", Path: file, Err: unix.EISDIR}
	}
	if err == nil {
		if err = unix.Access(file, unix.X_OK); err != nil {
			err = &fs.PathError{Op: "exec", Path: file, Err: err}
		}
	}
	switch {
	case err == nil:
		return 0, nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return 127, err
	}
	return 126, err
}
