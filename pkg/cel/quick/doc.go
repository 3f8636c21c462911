// Package quick answers one question: what is the value of this expression, if only plain data
// is involved?
//
// It is a second way to evaluate expressions that cel-go has parsed and checked, without a CEL
// value for each intermediate result. It supports a part of the language, and only evaluations
// without errors: if something is missing, of another type, or near a limit, it declines, and
// cel-go evaluates the expression from the beginning. So its results are those of cel-go, and
// it returns no errors of its own. It counts the same cost as cel-go.
//
// One table has the functions that it supports: the overloads, which determine the operands'
// types, the cost of a call, and how it is evaluated. Whether a call is supported depends on
// the overloads that the checker found for it, and the conversion of a value on the type that
// the checker gave it. Macros have no overloads: they are recognized by the comprehensions into
// which they expand.
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
// The functions in its table support operands that are null, bool, string, int and double, and
// lists and maps of these.
package quick
