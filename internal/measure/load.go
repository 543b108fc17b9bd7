package measure

// since is the share of the processors' time that was spent from then to now, or -1 if that is
// not known.
func (l load) since() float64 {
	at := loadNow()
	if at.all <= l.all {
		return -1
	}
	return (at.busy - l.busy) / (at.all - l.all)
}
