package defaulting

import (
	"sync"
	"time"
)

// deviceClaim has the rules of a ResourceClaim's spec. Up to v1beta1 a request has in
// itself what is in the field exactly from v1beta2 on.
func deviceClaim(request rule) rule {
	return in("devices.requests[]", request, in("firstAvailable[]", deviceRequest...))
}

var deviceRequest = []rule{
	fill("allocationMode", "ExactCount"),
	func(o *object) {
		if o.text("allocationMode") == "ExactCount" {
			fill("count", 1)(o)
		}
	},
	tolerations,
}

var tolerations = in("tolerations[]", fill("operator", "Equal"))

// exactRequest is a request of v1 and v1beta2.
var exactRequest = in("exactly?", deviceRequest...)

// plainRequest is a request of v1beta1.
func plainRequest(o *object) {
	if o.text("deviceClassName") != "" {
		for _, r := range deviceRequest {
			r(o)
		}
	}
	tolerations(o)
}

func resourceClaim(request rule) []rule {
	return []rule{in("spec", deviceClaim(request)), in("status.allocation?.devices.results[]", tolerations)}
}

var (
	deviceTaintRule = []rule{in("spec.taint", taint)}
	resourceSlice   = []rule{in("spec.devices[].taints[]", taint)}
)

// taint is a taint of a device, which a server dates when it reads the object.
func taint(o *object) { set("timeAdded", now())(o) }

// now is one time for all objects of a process, so that two evaluations of an object
// agree.
var now = sync.OnceValue(func() string { return time.Now().UTC().Format(time.RFC3339) })
