package language

import (
	"strings"

	"github.com/mapd-project/mapd/pkg/cel"
)

// nameDocs say what the names are that an expression may begin with.
var nameDocs = map[string]string{
	"object":          "The object of the request, as the mutations before this one left it. Null for DELETE.",
	"oldObject":       "The object before the request. Null for CREATE.",
	"request":         "The admission request: who does what to which resource.",
	"namespaceObject": "The Namespace of the object. Null for cluster-scoped objects.",
	"authorizer":      "Asks what the user of the request may do.",
	"params":          "The parameter object that the binding names.",
	"variables":       "The variables of the policy that are defined before this expression.",
	objectType:        "The apply configuration of a mutation. `Object.spec{…}` is the type of its field spec, `Object.spec.containers{…}` that of an element of a list.",
	patchType:         "An operation of a JSON patch (RFC 6902).",
}

// fieldTypes and fieldDocs are about fields of types that no schema has.
var (
	fieldTypes = map[string]string{
		patchType + ".op": "string", patchType + ".path": "string", patchType + ".from": "string", patchType + ".value": "any value",
	}
	fieldDocs = map[string]string{
		patchType + ".op":    "One of \"add\", \"remove\", \"replace\", \"move\", \"copy\" and \"test\".",
		patchType + ".path":  "A JSON pointer to what is changed. Use jsonpatch.escapeKey for keys with / or ~.",
		patchType + ".from":  "A JSON pointer to what \"move\" and \"copy\" take.",
		patchType + ".value": "What \"add\" and \"replace\" write, and what \"test\" compares.",

		"kubernetes.AdmissionRequest.kind":               "The kind of the object, in the version that the policy matches.",
		"kubernetes.AdmissionRequest.resource":           "The resource of the request, in the version that the policy matches.",
		"kubernetes.AdmissionRequest.subResource":        "The subresource of the request, such as scale.",
		"kubernetes.AdmissionRequest.requestKind":        "The kind of the object as the client sent it.",
		"kubernetes.AdmissionRequest.requestResource":    "The resource as the client named it.",
		"kubernetes.AdmissionRequest.requestSubResource": "The subresource as the client named it.",
		"kubernetes.AdmissionRequest.name":               "The name of the object; it is empty for a CREATE with generateName.",
		"kubernetes.AdmissionRequest.namespace":          "The namespace of the object.",
		"kubernetes.AdmissionRequest.operation":          "CREATE, UPDATE, DELETE or CONNECT.",
		"kubernetes.AdmissionRequest.userInfo":           "Who sent the request.",
		"kubernetes.AdmissionRequest.dryRun":             "Whether nothing is stored.",
		"kubernetes.AdmissionRequest.options":            "The options of the operation, such as CreateOptions.",
		"kubernetes.UserInfo.username":                   "The name of the user.",
		"kubernetes.UserInfo.uid":                        "The UID of the user.",
		"kubernetes.UserInfo.groups":                     "The groups of the user.",
		"kubernetes.UserInfo.extra":                      "What the authenticator says besides.",
	}
)

// functionDocs are the functions and macros of which their libraries say nothing.
var functionDocs = map[string]string{
	"add":                           "The sum of two quantities.",
	"all":                           "`list.all(x, condition)`: whether the condition holds for all elements of a list, or keys of a map. `map.all(key, value, condition)` sees both.",
	"allowed":                       "Whether the authorizer allows it.",
	"asApproximateFloat":            "The quantity as a double, which may be inexact.",
	"asInteger":                     "The quantity as an integer. It fails if the quantity is none; ask isInteger first.",
	"bind":                          "`cel.bind(x, value, expression)`: the expression, with x for the value.",
	"charAt":                        "The character at an index.",
	"check":                         "Asks the authorizer for a verb.",
	"cidr":                          "A string as a network in CIDR notation.",
	"compareTo":                     "-1, 0 or 1 if it is less than, equal to or greater than the other.",
	"containsCIDR":                  "Whether the network contains another one.",
	"containsIP":                    "Whether the network contains an address.",
	"distinct":                      "The list with each element once.",
	"error":                         "Why the authorizer could not decide.",
	"errored":                       "Whether the authorizer could not decide.",
	"exists":                        "`list.exists(x, condition)`: whether the condition holds for an element of a list, or a key of a map.",
	"existsOne":                     "`list.existsOne(x, condition)`: whether the condition holds for exactly one element.",
	"exists_one":                    "`list.exists_one(x, condition)`: whether the condition holds for exactly one element.",
	"externalData":                  "`externalData(provider, keys)`: what a Provider of external data says about keys. For policies of mapd's own group.",
	"family":                        "4 or 6.",
	"fieldSelector":                 "The authorizer's check, for requests with a field selector.",
	"filter":                        "`list.filter(x, condition)`: the elements for which the condition holds.",
	"find":                          "The first match of a regular expression, \"\" if there is none.",
	"findAll":                       "All matches of a regular expression, or at most so many.",
	"flatten":                       "The list with the elements of lists in it in their place.",
	"format":                        "The text with its %s, %d and so on replaced by elements of a list.",
	"getEscapedPath":                "The path of the URL, escaped.",
	"getHost":                       "The host of the URL with its port.",
	"getHostname":                   "The host of the URL without its port.",
	"getPort":                       "The port of the URL.",
	"getQuery":                      "The parameters of the URL's query.",
	"getScheme":                     "The scheme of the URL.",
	"group":                         "The authorizer's check for an API group.",
	"has":                           "`has(a.b)`: whether the field is there.",
	"includes":                      "Whether the list includes a value.",
	"indexOf":                       "Where the text or the value stands first, -1 if it does not.",
	"ip":                            "A string as an IP address, or the address of a network.",
	"ip.isCanonical":                "Whether a string is the canonical form of an address.",
	"isCIDR":                        "Whether a string is a network in CIDR notation.",
	"isGlobalUnicast":               "Whether the address is a global unicast address.",
	"isGreaterThan":                 "Whether it is greater than the other.",
	"isIP":                          "Whether a string is an IP address.",
	"isInteger":                     "Whether the quantity is an integer.",
	"isLessThan":                    "Whether it is less than the other.",
	"isLinkLocalMulticast":          "Whether the address is a link-local multicast address.",
	"isLinkLocalUnicast":            "Whether the address is a link-local unicast address.",
	"isLoopback":                    "Whether the address is a loopback address.",
	"isMask":                        "Whether the bits of a network behind its prefix are 0.",
	"isQuantity":                    "Whether a string is a quantity.",
	"isSemver":                      "Whether a string is a semantic version.",
	"isSorted":                      "Whether the list is sorted.",
	"isURL":                         "Whether a string is a URL.",
	"isUnspecified":                 "Whether the address is 0.0.0.0 or ::.",
	"join":                          "The strings of the list as one, with a separator between them.",
	"jsonpatch.escapeKey":           "A key as a part of a JSON pointer: ~ becomes ~0, and / becomes ~1.",
	"labelSelector":                 "The authorizer's check, for requests with a label selector.",
	"lastIndexOf":                   "Where the text or the value stands last, -1 if it does not.",
	"lists.range":                   "The integers from 0 to before a number.",
	"lowerAscii":                    "The text with its ASCII letters in lower case.",
	"major":                         "The major version.",
	"map":                           "`list.map(x, expression)`: what the expression makes of each element. `list.map(x, condition, expression)` leaves elements out.",
	"masked":                        "The network with the bits behind its prefix set to 0.",
	"max":                           "The largest element.",
	"min":                           "The smallest element.",
	"minor":                         "The minor version.",
	"name":                          "The authorizer's check for a name.",
	"namespace":                     "The authorizer's check for a namespace.",
	"optFlatMap":                    "`optional.optFlatMap(x, expression)`: the expression, which is an optional, for the value if there is one.",
	"optMap":                        "`optional.optMap(x, expression)`: an optional with the expression for the value if there is one.",
	"patch":                         "The patch version.",
	"path":                          "The authorizer's check for a path that is none of a resource.",
	"prefixLength":                  "The length of the network's prefix.",
	"quantity":                      "A string such as \"500m\" as a quantity.",
	"reason":                        "Why the authorizer decided so.",
	"replace":                       "The text with all of a part replaced, or at most so many.",
	"resource":                      "The authorizer's check for a resource.",
	"reverse":                       "The elements in reverse order.",
	"semver":                        "A string as a semantic version.",
	"serviceAccount":                "An authorizer that asks for a ServiceAccount: namespace and name.",
	"sets.contains":                 "Whether the first list has all elements of the second.",
	"sets.equivalent":               "Whether each list has all elements of the other.",
	"sets.intersects":               "Whether the lists have an element in common.",
	"sign":                          "-1, 0 or 1, as the quantity is negative, 0 or positive.",
	"slice":                         "The elements from an index to before another.",
	"sort":                          "The elements in order.",
	"sortBy":                        "`list.sortBy(x, key)`: the elements in the order of their keys.",
	"split":                         "The parts of the text between separators, or at most so many.",
	"strings.quote":                 "The text in quotes, with escapes.",
	"sub":                           "The difference of two quantities.",
	"subresource":                   "The authorizer's check for a subresource.",
	"substring":                     "The text from an index on, or to before another.",
	"sum":                           "The sum of the elements.",
	"transformList":                 "`list.transformList(index, x, expression)`: what the expression makes of each element. A condition may stand before it.",
	"transformMap":                  "`map.transformMap(key, value, expression)`: a map with what the expression makes of each value. A condition may stand before it.",
	"transformMapEntry":             "`map.transformMapEntry(key, value, {newKey: newValue})`: a map with the entries that the expression makes.",
	"trim":                          "The text without white space around it.",
	"upperAscii":                    "The text with its ASCII letters in upper case.",
	"url":                           "A string as a URL.",
	"validate":                      "What is wrong with the text by the format: an optional with a list.",
	"format.byte":                   "The format of base64.",
	"format.date":                   "The format of dates such as 2006-01-02.",
	"format.datetime":               "The format of times such as 2006-01-02T15:04:05Z.",
	"format.dns1035Label":           "The format of names of Services.",
	"format.dns1035LabelPrefix":     "The format of generateName for names of Services.",
	"format.dns1123Label":           "The format of names of Namespaces.",
	"format.dns1123LabelPrefix":     "The format of generateName for names of Namespaces.",
	"format.dns1123Subdomain":       "The format of names of most objects.",
	"format.dns1123SubdomainPrefix": "The format of generateName for names of most objects.",
	"format.labelValue":             "The format of values of labels.",
	"format.named":                  "The format of a name such as \"dns1123Label\": an optional.",
	"format.qualifiedName":          "The format of keys of labels and annotations.",
	"format.uri":                    "The format of URIs.",
	"format.uuid":                   "The format of UUIDs.",
}

// functionDoc says what a function does.
func functionDoc(f *cel.Function) string {
	doc := f.Doc
	if own := functionDocs[f.Name]; own != "" {
		doc = own
	}
	var forms []string
	for i, o := range f.Overloads {
		if i == maxForms {
			forms = append(forms, "…")
			break
		}
		forms = append(forms, spelled(f.Name, o))
	}
	if len(forms) > 0 {
		doc = strings.TrimSpace(doc + "\n\n```cel\n" + strings.Join(forms, "\n") + "\n```")
	}
	return doc
}

// maxForms is how many forms of a function are shown.
const maxForms = 10

func spelled(name string, o cel.Overload) string {
	args := o.Args
	if o.Member && len(args) > 0 {
		name, args = args[0]+"."+name, args[1:]
	}
	return name + "(" + strings.Join(args, ", ") + ") → " + o.Result
}

// signature returns how a function is called, in a line.
func signature(f *cel.Function) string {
	switch {
	case len(f.Overloads) == 0:
		return "macro"
	case len(f.Overloads) == 1:
		return spelled(f.Name, f.Overloads[0])
	}
	return spelled(f.Name, f.Overloads[0]) + ", …"
}
