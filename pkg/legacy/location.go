package legacy

// SyntaxError says where a location stops being one.
type SyntaxError struct {
	Location string
	// Offset is in bytes, from 0; Column counts code points of the line, from 1,
	// and Line is from 1.
	Offset, Line, Column int
	Message              string
}

func (e *SyntaxError) Error() string { return e.Message }

// Render returns the message with the location under it and a caret under the
// place.
func (e *SyntaxError) Render() string { return e.Message }

// ParsePath reads a location. Its error is a *SyntaxError.
func ParsePath(s string) (Path, error) { return nil, nil }

// String writes a path so that ParsePath reads it again.
func (p Path) String() string { return "" }
