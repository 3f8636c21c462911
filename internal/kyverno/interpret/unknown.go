package interpret

import (
	"errors"
	"fmt"
)

// errRule is the error of a rule whose reason does not matter.
var errRule = errors.New("the rule fails")

// Unknown says what the interpreter does not know about Kyverno. There is no result then.
type Unknown struct{ What string }

func (u *Unknown) Error() string { return "uses " + u.What }

// unknown panics with an Unknown, which ends the interpretation of a request.
func unknown(format string, args ...any) {
	panic(&Unknown{fmt.Sprintf(format, args...)})
}

// known runs f and returns the Unknown or the interruption that ended it.
func known(f func()) (err error) {
	defer func() {
		switch x := recover().(type) {
		case nil:
		case *Unknown:
			err = x
		case interrupted:
			err = x.error
		default:
			panic(x)
		}
	}()
	f()
	return nil
}

// interrupted is panicked with when the context is done.
type interrupted struct{ error }
