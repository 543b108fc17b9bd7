package dbserver

import "syscall"

func dieWithKeeper(attr *syscall.SysProcAttr, sig syscall.Signal) { attr.Pdeathsig = sig }
