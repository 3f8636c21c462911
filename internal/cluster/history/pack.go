package history

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"slices"
)

// maxUnpacked bounds the size of unpacked data, because gzip data can expand a thousandfold.
const maxUnpacked = 64 << 20

// Pack returns counts as compressed JSON of at most most bytes, and the number of pairs left out.
// If there is not enough room, it leaves out first the examples, and then the pairs with the
// fewest requests.
func Pack(all []Counted, most int) (text []byte, omitted int, err error) {
	if text, err = pack(all); err != nil || len(text) <= most {
		return text, 0, err
	}
	kept := slices.Clone(all)
	for i := range kept {
		kept[i].Last = nil
	}
	slices.SortStableFunc(kept, func(a, b Counted) int { return cmp.Compare(b.Seen, a.Seen) })
	for {
		if text, err = pack(kept); err != nil || len(text) <= most {
			return text, len(all) - len(kept), err
		}
		kept = kept[:len(kept)*3/4]
	}
}

func pack(all any) ([]byte, error) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if err := errors.Join(json.NewEncoder(w).Encode(all), w.Close()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Unpack decodes the result of Pack.
func Unpack(text []byte) ([]Counted, error) { return unpack[[]Counted](text) }

// unpack decodes the result of pack.
func unpack[T any](text []byte) (v T, err error) {
	r, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return v, err
	}
	err = json.NewDecoder(&io.LimitedReader{R: r, N: maxUnpacked}).Decode(&v)
	return v, err
}
