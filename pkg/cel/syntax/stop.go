package syntax

import (
	"context"
	"fmt"

	"github.com/google/cel-go/common"
)

// stop is the panic that leaves cel-go's parser or checker, which return no other way before
// they are done.
type stop struct{ err error }

// Stop panics with err, which the deferred [Stopped] of whoever called cel-go returns.
func Stop(err error) { panic(stop{err}) }

// Stopped, if it is deferred, sets err to the error of a Stop. Other panics go on.
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

// Interrupted returns the error for what ctx has ended.
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

// Slice returns a part of the text. It is called for each name and literal as nodes
// are made from them. The lexer, which calls Get, would not let a panic pass.
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
