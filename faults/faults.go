// Package faults has no code of its own: its tests start real dbcron daemons on
// real databases, kill them, stop them and cut them off, and then look whether
// the tables still tell the truth. `make faults` runs them at length and prints
// what became of the slots.
package faults
