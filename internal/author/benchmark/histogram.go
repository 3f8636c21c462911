package benchmark

import (
	"math/bits"
	"time"
)

// fine is the number of leading bits of a duration that are kept. A bucket is as wide as 1/128 of
// its values, so a quantile is off by less than half a percent.
const fine = 7

// histogram counts durations in constant memory, so that recording them does
// not change what is measured.
type histogram struct {
	buckets [(64 - fine) << fine]uint64
	n       uint64
	max     time.Duration
}

func (h *histogram) add(d time.Duration) {
	d = max(d, 0)
	h.buckets[bucket(uint64(d))]++
	h.n++
	h.max = max(h.max, d)
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.buckets {
		h.buckets[i] += n
	}
	h.n += o.n
	h.max = max(h.max, o.max)
}

// quantile returns the duration that a given share of all durations, from 0 to 1, does not
// exceed.
func (h *histogram) quantile(part float64) time.Duration {
	rank := max(uint64(part*float64(h.n)+0.5), 1)
	var seen uint64
	for i, n := range h.buckets {
		if seen += n; seen >= rank {
			return min(middle(i), h.max)
		}
	}
	return h.max
}

// bucket returns the index of the bucket for a value. Small values have their own bucket; larger
// ones share it with values of the same bit length and the same leading bits.
func bucket(v uint64) int {
	shift := max(bits.Len64(v)-fine-1, 0)
	return shift<<fine + int(v>>shift)
}

// middle returns the value in the middle of a bucket.
func middle(i int) time.Duration {
	shift := max(i>>fine-1, 0)
	low := uint64(i-shift<<fine) << shift
	return time.Duration(low + uint64(1)<<shift/2)
}
