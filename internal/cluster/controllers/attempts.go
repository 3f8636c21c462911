package controllers

import "time"

// callLimit bounds one call of the API server.
const callLimit = 10 * time.Second

// attempts tracks an action that is retried. It determines how long to wait after a failure, and
// which failures are worth another log entry.
type attempts struct {
	wait time.Duration
	last string // the error of the last attempt, "" after a success
}

// ended records the outcome of an attempt; a nil err is a success. After a failure it returns how
// long to wait before the next attempt, at most most. news is set if the failure differs from
// that of the last attempt, or follows a success.
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
