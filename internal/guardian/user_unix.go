//go:build unix

package guardian

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// credentialOf returns the credential of a user, or nil if the process already runs as that user.
func credentialOf(name string) (*syscall.Credential, error) {
	if name == "" {
		return nil, nil
	}
	u, err := lookupUser(name)
	if err != nil {
		return nil, err
	}
	uid, err := parseID(u.Uid)
	self := os.Geteuid()
	switch {
	case err != nil:
		return nil, err
	case uid == uint32(self):
		return nil, nil
	case self != 0: // a guardian with some capability might start it, but not kill it
		return nil, fmt.Errorf("user %s: only root can run a command as another user", name)
	}
	return newCredential(uid, u)
}

func newCredential(uid uint32, u *user.User) (*syscall.Credential, error) {
	gid, err := parseID(u.Gid)
	if err != nil {
		return nil, err
	}
	names, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("the groups of user %s: %w", u.Username, err)
	}
	c := &syscall.Credential{Uid: uid, Gid: gid}
	for _, name := range names {
		group, err := parseID(name)
		if err != nil {
			return nil, err
		}
		c.Groups = append(c.Groups, group)
	}
	return c, nil
}

// lookupUser finds a user by name or, if there is no such name, by number. It checks the number itself:
// user.LookupId takes 1<<32 for 0, which is root.
func lookupUser(name string) (*user.User, error) {
	u, err := user.Lookup(name)
	if err == nil {
		return u, nil
	}
	if uid, notNumber := parseID(name); notNumber == nil {
		return user.LookupId(strconv.FormatUint(uint64(uid), 10))
	}
	return nil, err
}

func parseID(s string) (uint32, error) {
	id, err := strconv.ParseUint(s, 10, 32)
	return uint32(id), err
}
