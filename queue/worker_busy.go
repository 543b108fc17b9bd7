package queue

// findBusy reports whether the worker is busy with long jobs. mu is held.
func (w *Worker) findBusy() bool {
	if w.unasked != nil {
		return w.unasked()
	}
	long := 0
	for _, unit := range w.slots {
		if len(unit) > 0 && unit[0].state.From == tableRunning {
			long++
		}
	}
	if w.longs++; long < len(w.slots) || long == 0 {
		w.longs = 0
	}
	return w.longs >= longTicks
}

// longTicks is the number of consecutive checks that must find all slots taken by long jobs for
// a worker to count as busy: if the jobs end soon, the change is not worth it.
const longTicks = 3
