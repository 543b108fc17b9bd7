// Package faults has only tests. They start real dbcron daemons on real databases, kill, stop and
// disconnect them, and then check that the tables still tell the truth. `make faults` runs them at
// length and prints the outcomes of the slots.
package faults
