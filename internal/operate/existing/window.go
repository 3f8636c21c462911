package existing

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Window is a time of the day, in UTC, on some days of the week. One that ends on the next day
// belongs to the day on which it begins.
type Window struct {
	days     [7]bool
	from, to time.Duration // of the day; to may be before from
}

const (
	day = 24 * time.Hour
	// windowForm is what ParseWindow reads.
	windowForm = "HH:MM-HH:MM in UTC, after days such as Mon-Fri or Sat,Sun"
)

var dayNames = []string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}

// ParseWindow reads a window such as "22:00-06:00" or "Mon-Fri 22:00-06:00".
func ParseWindow(text string) (w Window, err error) {
	wrong := fmt.Errorf("%q: want %s", text, windowForm)
	days, times, found := strings.Cut(strings.TrimSpace(text), " ")
	if !found {
		days, times = "", days
	}
	if days == "" {
		days = "Sun-Sat"
	}
	for part := range strings.SplitSeq(days, ",") {
		first, last, span := strings.Cut(part, "-")
		if !span {
			last = first
		}
		from, to := slices.Index(dayNames, first), slices.Index(dayNames, last)
		if from < 0 || to < 0 {
			return w, wrong
		}
		for at := from; ; at = (at + 1) % 7 {
			w.days[at] = true
			if at == to {
				break
			}
		}
	}
	from, to, _ := strings.Cut(strings.TrimSpace(times), "-")
	var ok, also bool
	w.from, ok = timeOfDay(from)
	w.to, also = timeOfDay(to)
	if !ok || !also || w.from == day || w.from == w.to {
		return w, wrong
	}
	return w, nil
}

// timeOfDay reads a time from 00:00 to 24:00.
func timeOfDay(text string) (time.Duration, bool) {
	if text == "24:00" {
		return day, true
	}
	at, err := time.Parse("15:04", text)
	return time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute, err == nil && len(text) == len("15:04")
}

// open reports whether a time is in the window.
func (w Window) open(t time.Time) bool {
	t = t.UTC()
	today := int(t.Weekday())
	at := t.Sub(t.Truncate(day))
	if w.from < w.to {
		return w.days[today] && at >= w.from && at < w.to
	}
	return w.days[today] && at >= w.from || w.days[(today+6)%7] && at < w.to
}

// open reports whether a time is in one of the windows, or there are none.
func open(windows []Window, t time.Time) bool {
	return len(windows) == 0 || slices.ContainsFunc(windows, func(w Window) bool { return w.open(t) })
}
