// Package quick answers one question: what is the value of this expression, if only
// plain data is looked at?
//
// It is a second way to run what cel-go has parsed and checked, without a CEL value for
// everything that is looked at in between. It takes a part of the language, and of that
// only what has no error: where something is missing, of another type, or near a bound,
// it declines, and cel-go evaluates the expression from the beginning. So it decides
// nothing that cel-go would decide otherwise, and no error is its own. It counts what
// cel-go counts.
//
// One table has the functions that it takes: the overloads, by which the operands' types
// are known, what a call costs, and how it is evaluated. Whether a call is taken depends
// on the overloads that the checker found for it, and what becomes of a value on the
// type that the checker gave it. Macros have no overloads: they are known by the
// comprehensions that they are short for.
//
// # What it does not take
//
// Literals of bytes, uint and of messages other than Object and JSONPatch, optional
// entries of lists, maps and JSONPatch, sums of doubles, the macros
//
//	existsOne exists_one optFlatMap sortBy transformMap transformMapEntry
//
// and the functions
//
//	-_ @sortByAssociatedKeys _%_ _*_ _/_ add allowed asApproximateFloat asInteger bool bytes
//	cel.@mapInsert charAt check cidr compareTo containsCIDR containsIP distinct double
//	duration error errored family fieldSelector find findAll first format format.byte
//	format.date format.datetime format.dns1035Label format.dns1035LabelPrefix
//	format.dns1123Label format.dns1123LabelPrefix format.dns1123Subdomain
//	format.dns1123SubdomainPrefix format.labelValue format.named format.qualifiedName
//	format.uri format.uuid getDate getDayOfMonth getDayOfWeek getDayOfYear getEscapedPath
//	getFullYear getHost getHostname getHours getMilliseconds getMinutes getMonth getPort
//	getQuery getScheme getSeconds group in includes indexOf int ip ip.isCanonical isCIDR
//	isGlobalUnicast isGreaterThan isIP isInteger isLessThan isLinkLocalMulticast
//	isLinkLocalUnicast isLoopback isQuantity isSemver isSorted isURL isUnspecified
//	labelSelector last lastIndexOf lists.range lowerAscii major masked max min minor name
//	namespace optional.ofNonZeroValue optional.unwrap patch path prefixLength quantity reason
//	replace resource semver serviceAccount sets.contains sets.equivalent sets.intersects sign
//	slice sort split strings.quote sub subresource sum timestamp trim uint unwrapOpt
//	upperAscii url validate
//
// Of the functions in its table it takes operands that are null, bool, string, int and
// double, and lists and maps of these.
package quick
