package peers

import (
	"context"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// start starts a server, which ends with the test.
func start(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	var err error
	for range 100 {
		if err = try(); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("%s: %v", what, err)
}
