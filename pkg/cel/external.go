package cel

import (
	"context"
	"fmt"
	"slices"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// Outside queries providers of external data for expressions.
type Outside interface {
	// External returns the values that a provider has for keys, which are all different. The
	// result lacks the keys for which the provider has no value. External may block until ctx
	// ends.
	External(ctx context.Context, provider string, keys []string) (map[string]string, error)
}

// Asking returns e with the function externalData in mutations and variables, for policies that
// only mapd runs and no API server.
func (e *Env) Asking() *Env {
	out := *e
	out.asks = true
	return &out
}

// externalDataName is the name of the function externalData(provider, keys). It returns a map
// from keys to values, without the keys for which the provider has no value. Kubernetes has no
// such function.
const externalDataName = "externalData"

var externalData = celgo.Function(externalDataName,
	celgo.Overload("external_data_string_list", []*celgo.Type{celgo.StringType, celgo.ListType(celgo.StringType)},
		celgo.MapType(celgo.StringType, celgo.StringType),
		celgo.BinaryBinding(func(_, _ ref.Val) ref.Val { return types.NewErr("externalData: nothing outside can be asked") })))

// The cost of a call of externalData, in addition to 1, the cost of each key, and the largest
// number of keys.
const (
	askCost    = 10_000
	askKeyCost = 100
	maxAskKeys = 1000
	// maxProviderName is the largest length of an object's name.
	maxProviderName = 253
)

// askingOutside executes a call of externalData.
func askingOutside(frame *interpreter.ExecutionFrame, c *call, args []ref.Val) ref.Val {
	a := activationOf(frame)
	provider, isName := args[0].(types.String)
	list, isList := args[1].(traits.Lister)
	switch {
	case !isName || !isList:
		return types.MaybeNoSuchOverloadErr(args[1])
	case a == nil || a.in == nil || a.in.Outside == nil:
		return c.plain(args)
	}
	if n := len(provider); n > maxProviderName {
		return types.NewErr("externalData: the name of the provider has %d bytes, a name has at most %d", n, maxProviderName)
	}
	size, _ := list.Size().(types.Int)
	if size > maxAskKeys {
		return types.NewErr("externalData: %d keys, at most %d can be asked for at once", size, maxAskKeys)
	}
	a.use(int64(size) * slotBytes)
	a.chargeWork(int64(size))
	a.unpaid = add(a.unpaid, askCost+int64(size)*askKeyCost)
	keys := make([]string, 0, size)
	for it := list.Iterator(); it.HasNext() == types.True; {
		key, ok := it.Next().(types.String)
		if !ok {
			return types.NewErr("externalData: a key is not a string")
		}
		a.read(len(key))
		keys = append(keys, string(key))
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	if len(keys) == 0 {
		return types.DefaultTypeAdapter.NativeToValue(map[string]any{})
	}
	values, err := a.in.Outside.External(a.ctx, string(provider), keys)
	if err != nil {
		return types.WrapErr(fmt.Errorf("externalData: %w", err))
	}
	data := make(map[string]any, len(values))
	for _, key := range keys {
		if v, ok := values[key]; ok {
			a.use(int64(len(v)) + 4*slotBytes)
			data[key] = v
		}
	}
	return types.DefaultTypeAdapter.NativeToValue(data)
}
