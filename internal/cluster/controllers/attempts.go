package controllers

import "time"

// callLimit bounds one call of the API server.
const callLimit = 10 * time.Second

// attempts are those of something that is tried again and again. They bound how often it is
// tried after a failure, and how often the log says the same.
type attempts struct {
	wait time.Duration
	last string // the error of the attempt before, "" after a success
}

// ended notes how an attempt ended, nil for a success. It returns how long to wait before the
// next one after a failure, at most most, and whether the failure is another than that of the
// attempt before: a failure that comes back after a success is.
func (a *attempts) ended(err error, most time.Duration) (wait time.Duration, news bool) {
	if err == nil {
		*a = attempts{}
		return 0, false
	}
	a.wait = min(max(retryFirst, 2*a.wait), most)
	news = err.Error() != a.last
	a.last = err.Error()
	return a.wait, news
}
