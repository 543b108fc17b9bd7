package faults

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// processes lists the processes with a mark in their environment.
func processes(mark string) []int {
	var found []int
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		env, err := os.ReadFile(filepath.Join(folder, "environ"))
		if err == nil && slices.ContainsFunc(bytes.Split(env, []byte{0}), func(v []byte) bool { return string(v) == mark }) {
			pid, _ := strconv.Atoi(filepath.Base(folder))
			found = append(found, pid)
		}
	}
	return found
}

// descendants lists those of the marked processes that descend from any of the ancestors.
func descendants(ancestors []int, mark string) []int {
	var found []int
	for _, pid := range processes(mark) {
		for up := pid; up > 1; up = parent(up) {
			if slices.Contains(ancestors, up) {
				found = append(found, pid)
				break
			}
		}
	}
	return found
}

func children(pid int) []int {
	var found []int
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		if child, err := strconv.Atoi(filepath.Base(folder)); err == nil && parent(child) == pid {
			found = append(found, child)
		}
	}
	return found
}

// parent reads the fourth word of stat. The second is a name in parentheses that may contain
// anything.
func parent(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	words := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(words) < 2 {
		return 0
	}
	up, _ := strconv.Atoi(words[1])
	return up
}
