// Package smallfile reads files that people name: settings, secrets, certificates, files of schedules. They are small, and at their end
// soon; but the name may be that of a device, or of a pipe that nobody writes.
package smallfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// ErrUnfit is what the errors are of a file that is too long, or whose end does not come.
var ErrUnfit = errors.New("the file is unfit")

type unfit struct{ error }

func (unfit) Is(target error) bool { return target == ErrUnfit }

// patience is how long the writer of a pipe has. Shells make a pipe of <(command).
var patience = 10 * time.Second

// Read returns what a file has, which is at most so many bytes: more are an error. What is no file on a disk has 10 seconds to come to
// its end.
func Read(path string, most int) ([]byte, error) {
	// Opening a pipe without a writer waits for one, unless one asks not to.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	pipe := info.Mode()&os.ModeNamedPipe != 0
	end := time.Now().Add(patience) //nolint:forbidigo // measures how long reading takes
	if !info.Mode().IsRegular() {
		_ = f.SetReadDeadline(end) // which files cannot have that never wait
	}
	for data := []byte(nil); ; <-time.After(10 * time.Millisecond) {
		more, err := io.ReadAll(io.LimitReader(f, int64(most+1-len(data))))
		data = append(data, more...)
		late := pipe && !time.Now().Before(end) //nolint:forbidigo // as above
		switch {
		case len(data) > most:
			return nil, unfit{fmt.Errorf("%s: it has more than %s", path, size(most))}
		case errors.Is(err, os.ErrDeadlineExceeded), late && len(data) == 0, late && errors.Is(err, syscall.EAGAIN):
			return nil, unfit{fmt.Errorf("%s: it is no file on a disk, and nobody has written it to its end within %v: put the text into a file",
				path, patience)}
		case pipe && (err == nil && len(data) == 0 || errors.Is(err, syscall.EAGAIN)): // nobody writes it yet
		default:
			return data, err
		}
	}
}

func size(n int) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
