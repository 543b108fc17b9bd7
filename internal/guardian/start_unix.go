//go:build unix

package guardian

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/dbcron/dbcron/internal/instant"
)

// start starts the command, or returns an exit code as a shell would.
func (w *ward) start() (int, error) {
	dir, path, code, err := w.enter()
	if err != nil {
		return code, err
	}
	files, err := w.files()
	if err != nil {
		return 126, err
	}
	defer func() {
		for _, f := range files { // the command's end must be the end of its files
			if w.spec.own() || f != os.Stdin && f != os.Stdout && f != os.Stderr {
				f.Close()
			}
		}
	}()
	fds := make([]uintptr, len(files))
	for i, f := range files {
		fds[i] = f.Fd() // blocking, as programs expect
	}
	w.startedAt = instant.Now()
	switch {
	case w.cause != "":
		return -1, errors.New("guardian: stopped before the command was started")
	case w.startedAt >= w.killTime():
		return -1, ErrPast
	}
	attr := commandAttr()
	attr.Credential = w.spec.Credential
	fork := func() (int, error) {
		return syscall.ForkExec(path, w.spec.Argv, &syscall.ProcAttr{
			Dir: dir, Env: append([]string{}, w.spec.Env...), Files: fds, Sys: attr,
		})
	}
	w.pid, err = fork()
	if errors.Is(err, unix.EACCES) && w.spec.Home && w.spec.Dir != "/" { // root could enter it, and the user may not
		w.spec.Dir = "/"
		if dir, path, _, err = w.enter(); err == nil {
			w.pid, err = fork()
		}
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return 126, fmt.Errorf("%s: its interpreter is not found", path)
	case err != nil && attr.Credential != nil: // any of the three may be the reason
		return 126, fmt.Errorf("%s as user %s in %s: %w", path, w.spec.User, cmp.Or(dir, "the caller's directory"), err)
	case err != nil:
		return 126, fmt.Errorf("%s: %w", path, err)
	}
	return 0, nil
}

// enter changes to the command's directory, for relative paths, and finds its file there. If the command has a user,
// it returns the directory that the command itself must enter again, with the user's rights, which may fail.
func (w *ward) enter() (dir, path string, code int, err error) {
	if w.spec.Dir != "" {
		err = os.Chdir(w.spec.Dir)
		if err != nil && w.spec.Home {
			err = os.Chdir("/")
		}
		if err == nil && w.spec.Credential != nil {
			dir, err = os.Getwd()
		}
		if err != nil {
			return "", "", 126, err
		}
	}
	path, code, err = LookPath(w.spec.Argv[0], w.spec.Env)
	return dir, path, code, err
}

// files returns the command's stdin, stdout and stderr, and starts to feed the first and read the others.
func (w *ward) files() ([]*os.File, error) {
	files := []*os.File{os.Stdin, os.Stdout, os.Stderr} // the caller's, or /dev/null
	if w.spec.Input != "" {
		r, in, err := w.newPipe()
		if err != nil {
			return nil, err
		}
		files[0] = r
		go func() {
			_, _ = io.WriteString(in, w.spec.Input) // EPIPE: the command does not read on
			in.Close()
		}()
	}
	w.eof = make(chan struct{})
	if w.spec.OwnOut && w.spec.OwnErr {
		close(w.eof)
		return files, nil
	}
	r, out, err := w.newPipe()
	if err != nil {
		return nil, err
	}
	w.pipe = r
	if !w.spec.OwnOut {
		files[1] = out
	}
	if !w.spec.OwnErr {
		files[2] = out
	}
	go func() {
		defer close(w.eof)
		to := io.Writer(w.out)
		if w.spec.Echo {
			to = io.MultiWriter(w.out, w.echo)
		}
		_, _ = io.Copy(to, r)
	}()
	return files, nil
}

// newPipe returns a pipe that the command's user can open, too, for instance as /dev/stdout. Where a
// pipe's owner cannot be changed, everybody can.
func (w *ward) newPipe() (reader, writer *os.File, err error) {
	reader, writer, err = os.Pipe()
	if c := w.spec.Credential; c != nil && err == nil {
		_ = reader.Chown(int(c.Uid), -1)
	}
	return reader, writer, err
}
