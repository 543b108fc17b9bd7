//go:build !unix

package dbserver

import (
	"errors"
	"syscall"
)

type account struct{ uid, gid int }

func runAs([]string) (*account, error) {
	return nil, errors.New("this operating system is not supported: set the URL of a server instead")
}

func ownSession() *syscall.SysProcAttr { return nil }

func serverProcess(*account, syscall.Signal) *syscall.SysProcAttr { return nil }

func crash(int) {}
