package webhook

import "math/bits"

// Sizes in bytes of the parts of a tree, in Go 1.26 on a 64-bit machine.
const (
	stringSize = 16 // a string header, which an any with a string refers to
	valueSize  = 16 // an any
	numberSize = 8
	mapSlot    = 33 // a name, a value and a byte that says whether there are any
	mapHeader  = 48
	mapGroup   = 8 // slots that are allocated together
	listHeader = 24
	// levelSize is the stack that walking one level of a tree needs: some 300 bytes, twice that
	// in a stack that grows by doubling, and the old stack during the copy.
	levelSize = 1 << 10
)

// maxDepth is the nesting that both decoders allow. A server allows the same.
const maxDepth = 10_000

// mapCost returns the size of a map[string]any that is allocated for n fields.
func mapCost(n int) int {
	slots := mapGroup
	if n > mapGroup {
		slots = 1 << bits.Len(uint(n*8/7)) // at most seven eighths of a map are in use
	}
	return mapHeader + slots*mapSlot
}

// listCost returns the size of a []any of n elements in an any.
func listCost(n int) int { return listHeader + n*valueSize }

// WeighJSON returns an upper bound of what sigs.k8s.io/json allocates for a
// document, since its decoding cannot be stopped. data need not be JSON.
func WeighJSON(data []byte) int64 {
	var (
		sum            int64
		open           []int // how many elements each open map or list has so far
		depth, deepest int
	)
	for i := 0; i < len(data); i++ {
		switch c := data[i]; c {
		case '"':
			from := i
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
			sum += int64(stringSize + 3*(i-from)) // unescaped in a buffer of its own
		case '{', '[':
			if depth < len(open) {
				open[depth] = 0
			} else {
				open = append(open, 0)
			}
			if depth++; depth > maxDepth {
				return sum // the decoder refuses it before it allocates anything
			}
			if depth > deepest {
				deepest = depth
				sum += levelSize
			}
		case ',':
			if depth > 0 {
				open[depth-1]++
			}
		case '}', ']':
			if depth == 0 {
				break
			}
			depth--
			// Both grow while they are decoded, so they are allocated several times.
			if n := open[depth] + 1; c == '}' {
				sum += 2 * int64(mapCost(n))
			} else {
				sum += 3 * int64(listCost(n))
			}
		case ' ', '\t', '\r', '\n', ':':
		default:
			sum += numberSize // of a number, each byte of it
		}
	}
	return sum
}
