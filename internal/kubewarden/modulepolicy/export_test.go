package modulepolicy

// Count returns how many modules the Loader holds.
func (l *Loader) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.modules)
}
