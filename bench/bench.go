// Package bench measures dbcron side by side with alternatives, in one run on one machine. Only
// ratios of figures from the same run mean anything.
package bench
