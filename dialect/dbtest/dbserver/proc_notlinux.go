//go:build unix && !linux

package dbserver

import "syscall"

func dieWithKeeper(*syscall.SysProcAttr, syscall.Signal) {}
