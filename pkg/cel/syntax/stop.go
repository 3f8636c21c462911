package syntax

import (
	"context"
	"fmt"

	"github.com/google/cel-go/common"
)

// stop is the panic that ends cel-go's parser or checker early, which have no other way to
// stop.
type stop struct{ err error }

// Stop panics with err. The function that called cel-go must defer [Stopped], which returns
// err.
func Stop(err error) { panic(stop{err}) }

// Stopped, if deferred, sets err to the error of a Stop. It does not recover other panics.
func Stopped(err *error) {
	switch v := recover().(type) {
	case nil:
	case stop:
		*err = v.err
	default:
		panic(v)
	}
}

// Interrupt calls Stop if ctx is done.
func Interrupt(ctx context.Context) {
	if ctx.Err() != nil {
		Stop(Interrupted(ctx))
	}
}

// Interrupted returns the error for work that the end of ctx has stopped.
func Interrupted(ctx context.Context) error {
	return fmt.Errorf("compiling was stopped: %w", context.Cause(ctx))
}

// source is the text of an expression, through which the parser can be stopped.
type source struct {
	common.Source
	buffer
	ctx   context.Context
	count uint
}

type buffer interface {
	Get(i int) rune
	Slice(i, j int) string
	Len() int
}

// Slice returns a part of the text, and is where the parser can be stopped. It is called for
// each name and literal when nodes are made. Get is called by the lexer, which recovers panics.
func (s *source) Slice(i, j int) string {
	if s.count++; s.count%256 == 0 {
		Interrupt(s.ctx)
	}
	return s.buffer.Slice(i, j)
}

// Text returns an expression for cel-go's parser, which ends with a Stop when ctx does. It is an
// error if the expression is too long.
func Text(ctx context.Context, expr string) (common.Source, error) {
	text, err := common.NewTextSourceWithLimit(expr, maxText)
	if b, ok := text.(buffer); ok && ctx.Done() != nil {
		return &source{Source: text, buffer: b, ctx: ctx}, err
	}
	return text, err
}

// maxText is cel-go's bound on code points.
const maxText = 100_000
