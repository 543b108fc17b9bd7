package measure

// since returns the share of processor time that was busy from then to now, or -1 if unknown.
func (l load) since() float64 {
	at := loadNow()
	if at.all <= l.all {
		return -1
	}
	return (at.busy - l.busy) / (at.all - l.all)
}
