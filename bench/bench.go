// Package bench measures dbcron side by side with other ways to do the same, in
// one run on one machine: only ratios of figures of one run mean something.
package bench
